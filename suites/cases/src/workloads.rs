//! What real applications do: libraries of `suites/workloads`, each under the same promises as any client.

pub mod embedder;
pub mod launch;
