//! User objects: a client's resource with a count of references, some of them held by graphs.

use std::collections::BTreeMap;

use abi::cuda::*;

use crate::boundary::{Answer, ClientCall, Kept, Out};
use crate::driver::{self, Driver};
use crate::handle;
use crate::process::Process;

pub struct UserObject {
    destroy: ClientCall,
    references: u32,
}

/// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, the only flag there is, and it must be given.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// CU_GRAPH_USER_OBJECT_MOVE: the graph takes the caller's references.
const MOVE: u32 = 1;

impl Process {
    fn object_id(&self, object: CUuserObject) -> Result<u32, CUresult> {
        handle::decode(handle::Kind::UserObject, object.0 as u64)
            .filter(|id| self.graphs.objects.contains_key(id))
            .ok_or(CUresult::ERROR_INVALID_VALUE)
    }

    /// Drops references; the attendant calls the destructor of what has none left.
    pub fn drop_objects(&mut self, driver: &Driver, references: BTreeMap<u32, u32>) {
        for (id, count) in references {
            let Some(object) = self.graphs.objects.get_mut(&id) else {
                continue;
            };
            object.references = object.references.saturating_sub(count);
            if object.references == 0
                && let Some(object) = self.graphs.objects.remove(&id)
            {
                self.call_soon(driver, object.destroy);
            }
        }
    }

    pub fn keep_objects(&mut self, references: &BTreeMap<u32, u32>) {
        for (id, count) in references {
            if let Some(object) = self.graphs.objects.get_mut(id) {
                object.references = object.references.saturating_add(*count);
            }
        }
    }
}

pub fn create(
    out: Out<CUuserObject>,
    data: Out<c_void>,
    destroy: CUhostFn,
    references: c_uint,
    flags: c_uint,
) -> Answer {
    let out = out.required()?;
    if destroy.is_none() || references == 0 || flags != NO_DESTRUCTOR_SYNC {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let id = process.graphs.next();
    let destroy = ClientCall::Function(Kept((destroy, data.raw())));
    process.graphs.objects.insert(
        id,
        UserObject {
            destroy,
            references,
        },
    );
    out.set(CUuserObject(
        handle::encode(handle::Kind::UserObject, id) as *mut c_void
    ));
    Ok(())
}

pub fn retain(object: CUuserObject, count: c_uint) -> Answer {
    if object.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let id = process.object_id(object)?;
    if count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.keep_objects(&BTreeMap::from([(id, count)]));
    Ok(())
}

pub fn release(object: CUuserObject, count: c_uint) -> Answer {
    if object.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.object_id(object)?;
    if count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.drop_objects(driver, BTreeMap::from([(id, count)]));
    Ok(())
}

pub fn retain_by_graph(
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: c_uint,
) -> Answer {
    if graph.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let graph = process.graphs.graph_id(graph)?;
    let id = process.object_id(object)?;
    if count == 0 || flags & !MOVE != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if flags & MOVE == 0 {
        process.keep_objects(&BTreeMap::from([(id, count)]));
    }
    *process
        .graphs
        .graph_mut(graph)
        .objects
        .entry(id)
        .or_default() += count;
    Ok(())
}

pub fn release_by_graph(graph: CUgraph, object: CUuserObject, count: c_uint) -> Answer {
    if graph.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let graph = process.graphs.graph_id(graph)?;
    let id = process.object_id(object)?;
    let held = process.graphs.graph_mut(graph).objects.get_mut(&id);
    match held {
        Some(held) if count > 0 && count <= *held => {
            *held -= count;
            process.drop_objects(driver, BTreeMap::from([(id, count)]));
            Ok(())
        }
        // More than it holds: nothing happens, and nothing is said.
        Some(_) if count > 0 => Ok(()),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    }
}
