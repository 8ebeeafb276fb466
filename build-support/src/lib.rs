//! build-support: what the build scripts of the cdylibs share, and what reads the oracle's tables.
//!
//! [`link`] has the link arguments, [`oracle`] the rows of `fixtures/oracle`, [`rust`] those rows as the source text that
//! the mocks include. It embeds no table and knows no other crate of ours: a shipped library may use it to be built.

pub mod link;
pub mod oracle;
pub mod rust;
