//! The conformance cases: promises to a tenant of a shared GPU, each tried by a client that sees only the C APIs.
//!
//! * [`ffi`]: the one room of unsafe, typed clients of CUDA, NVML and Vulkan.
//! * [`clients`], [`greed`], [`tenant`], [`kill_storm`], [`room`]: clients made ready, memory taken until refused, further
//!   processes, and how long they were let wait.
//! * [`cuda`], [`nvml`], [`vulkan`], [`cross`], [`process`], [`activation`], [`symbols`], [`faults`], [`views`], [`workloads`]:
//!   the cases, a file per noun.

pub mod activation;
pub mod clients;
pub mod cross;
pub mod cuda;
pub mod faults;
pub mod ffi;
pub mod greed;
pub mod kill_storm;
pub mod nvml;
pub mod process;
pub mod room;
pub mod symbols;
pub mod tenant;
pub mod views;
pub mod vulkan;
pub mod workloads;

/// Everything that `ringfence test` and `cargo test` run.
pub const SUITE: harness::Suite = harness::Suite {
    cases: &[
        cuda::budget::CASES,
        cuda::info::CASES,
        cuda::answers::CASES,
        cuda::arguments::CASES,
        cuda::free::CASES,
        cuda::faults::CASES,
        cuda::floor::CASES,
        cuda::own_streams::CASES,
        cuda::pinned::CASES,
        cuda::green::CASES,
        cuda::contexts::CASES,
        cuda::pools::CASES,
        cuda::threads::CASES,
        cuda::devices::CASES,
        cuda::routes::CASES,
        cuda::arrays::CASES,
        cuda::physical::CASES,
        cuda::launches::CASES,
        cuda::memsets::CASES,
        cuda::share::CASES,
        cuda::graphs::CASES,
        cuda::modules::CASES,
        cuda::newer::CASES,
        cuda::functions::CASES,
        cuda::truth::CASES,
        cuda::workers::CASES,
        cuda::zeros::CASES,
        nvml::CASES,
        faults::CASES,
        views::CASES,
        vulkan::budget::CASES,
        vulkan::heaps::CASES,
        vulkan::identity::UUID_FAULTS,
        vulkan::identity::CASES,
        vulkan::lifetime::CASES,
        vulkan::devices::CASES,
        vulkan::loader::CASES,
        cross::changed::CASES,
        cross::external::CASES,
        cross::objects::CASES,
        cross::lent::CASES,
        vulkan::submits::CASES,
        vulkan::asked::CASES,
        vulkan::chains::CASES,
        vulkan::floor::CASES,
        vulkan::screen::CASES,
        vulkan::waits::CASES,
        vulkan::wrapped::SIDES,
        vulkan::wrapped::CASES,
        cross::share::CASES,
        cross::story::CASES,
        cross::whole::CASES,
        process::births::CASES,
        process::endings::CASES,
        process::foreign::CASES,
        process::fork::CASES,
        process::guest::CASES,
        process::ledger::CASES,
        process::owner::CASES,
        process::settings::CASES,
        process::storm::CASES,
        process::telling::CASES,
        activation::matrix::CASES,
        activation::absent::CASES,
        activation::mapped::CASES,
        activation::misled::CASES,
        activation::pod::CASES,
        activation::proxy::CASES,
        activation::scrubbed::CASES,
        symbols::lookup::CASES,
        symbols::proc_address::CASES,
        symbols::missing::CASES,
        symbols::own_data::CASES,
        symbols::runtimes::CASES,
        symbols::ways::CASES,
        workloads::embedder::contexts::CASES,
        workloads::embedder::releases::CASES,
        workloads::embedder::modules::CASES,
        workloads::embedder::regions::CASES,
        workloads::embedder::buffers::CASES,
        workloads::embedder::memory::CASES,
        workloads::embedder::lavapipe::CASES,
        workloads::launch::bounds::CASES,
        workloads::launch::chance::CASES,
        workloads::launch::devices::CASES,
        workloads::launch::edges::CASES,
        workloads::launch::graphs::CASES,
        workloads::launch::kernels::CASES,
        workloads::launch::modules::CASES,
        workloads::launch::pace::CASES,
        workloads::launch::residency::CASES,
    ],
    roles: &[
        activation::misled::ROLES,
        activation::proxy::ROLES,
        tenant::ROLES,
        cuda::share::ROLES,
        cuda::workers::ROLES,
        cross::objects::ROLES,
        cross::whole::ROLES,
        kill_storm::ROLES,
        process::births::ROLES,
        process::endings::ROLES,
        symbols::lookup::ROLES,
        symbols::runtimes::ROLES,
        vulkan::budget::ROLES,
        vulkan::devices::ROLES,
        vulkan::wrapped::ROLES,
        workloads::launch::pace::ROLES,
    ],
    expectations: harness::expectations::SHIPPED,
    afterwards: ffi::vulkan::validated,
    exhaust: greed::exhaust,
};
