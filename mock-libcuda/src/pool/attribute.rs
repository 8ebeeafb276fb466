//! What a pool is told and asked: its attributes, and who reaches its memory.

use super::*;

pub fn set_attribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    use pool_attribute::*;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    // The real driver reads the value of a known attribute without looking.
    if value.is_null() {
        match attr {
            REUSE_FOLLOW_EVENT_DEPENDENCIES..=RELEASE_THRESHOLD => crash(),
            _ => return Err(INVALID),
        }
    }
    let pool = process.pool_mut(id);
    match attr {
        REUSE_FOLLOW_EVENT_DEPENDENCIES..=REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            pool.reuse[attr as usize - 1] = (value.cast::<c_int>().required()?.get() != 0).into();
        }
        RELEASE_THRESHOLD => {
            pool.threshold = value.cast::<u64>().required()?.get();
            pool.dirty = true;
        }
        // A high-water mark can only be reset.
        RESERVED_MEM_HIGH | USED_MEM_HIGH => {
            if value.cast::<u64>().required()?.get() != 0 {
                return Err(INVALID);
            }
            let mark = if attr == USED_MEM_HIGH {
                &mut pool.used
            } else {
                &mut pool.reserved
            };
            mark.high = mark.now;
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

pub fn get_attribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    use pool_attribute::*;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    let pool = process.pool_mut(id);
    let number = match attr {
        REUSE_FOLLOW_EVENT_DEPENDENCIES..=REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value
                .cast::<c_int>()
                .required()?
                .set(pool.reuse[attr as usize - 1]);
            return Ok(());
        }
        RELEASE_THRESHOLD => pool.threshold,
        RESERVED_MEM_CURRENT => pool.reserved.now,
        RESERVED_MEM_HIGH => pool.reserved.high,
        USED_MEM_CURRENT => pool.used.now,
        USED_MEM_HIGH => pool.used.high,
        _ => return Err(INVALID),
    };
    value.cast::<u64>().required()?.set(number);
    Ok(())
}

/// The own device's access is read and write, and cannot be taken away.
pub fn set_access(pool: CUmemoryPool, list: In<CUmemAccessDesc>, count: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    if list.is_null() {
        return Err(INVALID);
    }
    let mut rights = Vec::new();
    for at in 0..count {
        let wanted = list.nth(at).ok_or(INVALID)?;
        if !matches!(wanted.flags, 0 | 1 | 3) {
            return Err(INVALID);
        }
        if wanted.location.type_ != 1 {
            return Err(CUresult::ERROR_NOT_SUPPORTED);
        }
        let device = driver.ordinal(wanted.location.id)?;
        match wanted.flags {
            0 if device == process.pool_mut(id).device => {
                return Err(CUresult::ERROR_INVALID_DEVICE);
            }
            1 => return Err(CUresult::ERROR_NOT_SUPPORTED),
            // A pool without memory learns only at its next allocation what it was promised in vain (NVIDIA's
            // programming guide).
            3 if !process.pool_mut(id).steps.is_empty()
                && !driver.is_open_to(process.pool_mut(id).device, device) =>
            {
                return Err(CUresult::ERROR_INVALID_DEVICE);
            }
            _ => {}
        }
        rights.push((device.0, wanted.flags));
    }
    process.pool_mut(id).access.extend(rights);
    Ok(())
}

pub fn get_access(
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: Out<CUmemLocation>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let flags = flags.required()?;
    let id = process.pool_of(pool)?;
    let location = location.required()?.get();
    match location.type_ {
        1 => {}
        // The host has none of it.
        2 => {
            flags.set(0);
            return Ok(());
        }
        _ => return Err(INVALID),
    }
    let device = driver.ordinal(location.id).map_err(|_| INVALID)?;
    let pool = process.pool_mut(id);
    let own = if device == pool.device { 3 } else { 0 };
    flags.set(pool.access.get(&device.0).copied().unwrap_or(own));
    Ok(())
}
