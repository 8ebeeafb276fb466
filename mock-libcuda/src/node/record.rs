//! Nodes that record events and wait for them.

use super::*;

pub(super) fn event_of(process: &Process, event: CUevent) -> Result<u32, CUresult> {
    process.event_id(event)
}

pub(super) fn not_null(event: CUevent) -> Answer {
    match event.is_null() {
        true => Err(INVALID),
        false => Ok(()),
    }
}

macro_rules! event_nodes {
    ($variant:ident $add:ident $get:ident $set:ident $set_exec:ident) => {
        pub fn $add(
            node: Out<CUgraphNode>,
            graph: CUgraph,
            after: In<CUgraphNode>,
            count: usize,
            event: CUevent,
        ) -> Answer {
            not_null(event)?;
            Place::plain(node, graph, after, count)
                .add(|process, _, _, _| event_of(process, event).map(Payload::$variant))
        }

        pub fn $get(node: CUgraphNode, event: Out<CUevent>) -> Answer {
            let event = event.required()?;
            with(node, |_, payload| match payload {
                Payload::$variant(id) => {
                    event.set(event::handle_of(*id));
                    Ok(())
                }
                _ => Err(INVALID),
            })
        }

        pub fn $set(node: CUgraphNode, event: CUevent) -> Answer {
            not_null(event)?;
            change(node, |process, _, _| {
                event_of(process, event).map(Payload::$variant)
            })
        }

        pub fn $set_exec(exec: CUgraphExec, node: CUgraphNode, event: CUevent) -> Answer {
            not_null(event)?;
            change_exec(exec, node, |process, _| {
                event_of(process, event).map(Payload::$variant)
            })
        }
    };
}
event_nodes! { EventRecord add_record get_record set_record set_exec_record }
event_nodes! { EventWait add_wait get_wait set_wait set_exec_wait }
