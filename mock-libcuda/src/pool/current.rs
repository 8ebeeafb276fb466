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

/// The device that a location and a type of memory have a pool on, and whether the memory is managed.
fn place_of(
    driver: &Driver,
    location: Out<CUmemLocation>,
    kind: c_int,
) -> Result<(Ordinal, bool), CUresult> {
    let location = location.required()?.get();
    match (kind, location.type_) {
        (PINNED | MANAGED, 1) => {
            let device = driver.ordinal(location.id).map_err(|_| INVALID)?;
            Ok((device, kind == MANAGED))
        }
        (PINNED | MANAGED, 2..=4) => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

impl Process {
    /// A device's default pool of managed memory and its current one.
    fn managed_pools(&mut self, device: Ordinal) -> &mut [PoolId; 2] {
        let next = PoolId(self.pools.len() as u32);
        if let std::collections::btree_map::Entry::Vacant(entry) =
            self.managed_pools.entry(device.0)
        {
            entry.insert([next; 2]);
            let mut pool = Pool::new(device, 0);
            pool.managed = true;
            self.pools.push(pool);
        }
        self.managed_pools.entry(device.0).or_insert([next; 2])
    }
}

pub fn default_of_location(
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: c_int,
) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let (device, managed) = place_of(driver, location, kind)?;
    pool.set(handle_of(match managed {
        true => driver.lock().managed_pools(device)[0],
        false => PoolId(device.0 as u32),
    }));
    Ok(())
}

pub fn of_location(pool: Out<CUmemoryPool>, location: Out<CUmemLocation>, kind: c_int) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let (device, managed) = place_of(driver, location, kind)?;
    let mut process = driver.lock();
    pool.set(handle_of(match managed {
        true => process.managed_pools(device)[1],
        false => process.current_pools[device.0],
    }));
    Ok(())
}

pub fn set_of_location(location: Out<CUmemLocation>, kind: c_int, pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let (device, managed) = place_of(driver, location, kind)?;
    if !managed {
        return set_of_device(device.0 as CUdevice, pool);
    }
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    let pool = process.pool_mut(id);
    if pool.device != device || !pool.managed {
        return Err(INVALID);
    }
    process.managed_pools(device)[1] = id;
    Ok(())
}
