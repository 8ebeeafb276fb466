//! Which pool is a device's default, and which its requests come from.

use super::*;

pub fn default_of_device(pool: Out<CUmemoryPool>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    pool.set(handle_of(PoolId(driver.ordinal(dev)?.0 as u32)));
    Ok(())
}

pub fn of_device(pool: Out<CUmemoryPool>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let device = driver.ordinal(dev).map_err(|_| INVALID)?;
    pool.set(handle_of(driver.lock().current_pools[device.0]));
    Ok(())
}

pub fn set_of_device(dev: CUdevice, pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev).map_err(|_| INVALID)?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    if process.pool_mut(id).device != device {
        return Err(INVALID);
    }
    process.current_pools[device.0] = id;
    Ok(())
}

/// What has pools beside a device's own: its managed memory, or a locality domain of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolPlace {
    device: usize,
    managed: bool,
    domain: Option<u8>,
}

impl PoolPlace {
    fn device(self) -> Ordinal {
        Ordinal(self.device)
    }

    /// All of a device, whose pools are made with it.
    fn is_whole(self) -> bool {
        !self.managed && self.domain.is_none()
    }
}

/// What a location and a type of memory have a pool of.
fn place_of(
    driver: &Driver,
    location: Out<CUmemLocation>,
    kind: c_int,
) -> Result<PoolPlace, CUresult> {
    let location = location.required()?.get();
    match (kind, driver.place(location), location.type_) {
        (MANAGED, Some(Ok((_, Some(_)))), _) => Err(INVALID),
        (PINNED | MANAGED, Some(place), _) => {
            let (device, domain) = place.map_err(|_| INVALID)?;
            Ok(PoolPlace {
                device: device.0,
                managed: kind == MANAGED,
                domain,
            })
        }
        (PINNED | MANAGED, None, 2..=4) => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

impl Process {
    /// The default pool of such a place and its current one.
    fn pools_of(&mut self, place: PoolPlace) -> &mut [PoolId; 2] {
        let next = PoolId(self.pools.len() as u32);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.pools_of.entry(place) {
            entry.insert([next; 2]);
            let mut pool = Pool::new(place.device(), 0);
            pool.managed = place.managed;
            pool.domain = place.domain;
            self.pools.push(pool);
        }
        self.pools_of.entry(place).or_insert([next; 2])
    }
}

pub fn default_of_location(
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: c_int,
) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let place = place_of(driver, location, kind)?;
    pool.set(handle_of(match place.is_whole() {
        false => driver.lock().pools_of(place)[0],
        true => PoolId(place.device as u32),
    }));
    Ok(())
}

pub fn of_location(pool: Out<CUmemoryPool>, location: Out<CUmemLocation>, kind: c_int) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let place = place_of(driver, location, kind)?;
    let mut process = driver.lock();
    pool.set(handle_of(match place.is_whole() {
        false => process.pools_of(place)[1],
        true => process.current_pools[place.device],
    }));
    Ok(())
}

pub fn set_of_location(location: Out<CUmemLocation>, kind: c_int, pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let place = place_of(driver, location, kind)?;
    if place.is_whole() {
        return set_of_device(place.device as CUdevice, pool);
    }
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    let pool = process.pool_mut(id);
    if (pool.device, pool.managed, pool.domain) != (place.device(), place.managed, place.domain) {
        return Err(INVALID);
    }
    process.pools_of(place)[1] = id;
    Ok(())
}
