//! Streams' attributes.

use super::*;

/// CU_LAUNCH_ATTRIBUTE_…: what a stream has of them.
mod attribute {
    pub const ACCESS_POLICY_WINDOW: i32 = 1;
    pub const SYNCHRONIZATION_POLICY: i32 = 3;
    pub const PRIORITY: i32 = 8;
    pub const MEM_SYNC_DOMAIN_MAP: i32 = 9;
    pub const MEM_SYNC_DOMAIN: i32 = 10;
    pub const ALL: [i32; 5] = [
        ACCESS_POLICY_WINDOW,
        SYNCHRONIZATION_POLICY,
        PRIORITY,
        MEM_SYNC_DOMAIN_MAP,
        MEM_SYNC_DOMAIN,
    ];
}

pub fn get_attribute(
    stream: CUstream,
    attr: CUlaunchAttributeID,
    value: Out<CUkernelNodeAttrValue_v1>,
) -> Answer {
    let known = attribute::ALL.contains(&attr);
    if value.is_null() && !(known && driver::get().is_ok()) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let process = driver::get()?.lock();
    process.stream_context(stream)?;
    let value = value.or_crash();
    let of = process.stream_of(stream)?;
    let mut answer = CUkernelNodeAttrValue_v1::zeroed();
    match (attr, of.and_then(|of| of.attributes.get(&attr))) {
        (_, Some(kept)) => answer = kept.0,
        (attribute::ACCESS_POLICY_WINDOW | attribute::MEM_SYNC_DOMAIN, _) => {}
        (attribute::SYNCHRONIZATION_POLICY, _) => answer.syncPolicy = -1,
        (attribute::PRIORITY, _) => answer.priority = of.map_or(0, |of| of.priority),
        (attribute::MEM_SYNC_DOMAIN_MAP, _) => {
            answer.memSyncDomainMap.remote = 1;
        }
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    }
    value.set(answer);
    Ok(())
}

pub fn set_attribute(
    stream: CUstream,
    attr: CUlaunchAttributeID,
    value: In<CUkernelNodeAttrValue_v1>,
) -> Answer {
    let mut process = driver::get()?.lock();
    process.stream_context(stream)?;
    if !attribute::ALL.contains(&attr) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let value = value.or_crash();
    let number = crate::boundary::first_word(&value);
    if attr == attribute::SYNCHRONIZATION_POLICY && !(1..=4).contains(&number) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if let Named::Created(id) = named(stream)?
        && let Some(stream) = process.streams.get_mut(&id)
    {
        if attr == attribute::PRIORITY {
            stream.priority = number.clamp(GREATEST, 0);
        }
        stream.attributes.insert(attr, Kept(value));
    }
    Ok(())
}

pub fn copy_attributes(to: CUstream, from: CUstream) -> Answer {
    let mut process = driver::get()?.lock();
    process.stream_context(to)?;
    process.stream_context(from)?;
    let attributes = process.stream_of(from)?.map(|from| from.attributes.clone());
    if let (Named::Created(id), Some(attributes)) = (named(to)?, attributes)
        && let Some(to) = process.streams.get_mut(&id)
    {
        to.attributes = attributes;
    }
    Ok(())
}
