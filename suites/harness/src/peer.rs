//! The other processes of a case: same executable, another role, lines over stdin and stdout.

use crate::failure::Failure;

/// A role process that is about to start.
pub struct Launch {
    role: String,
    args: Vec<String>,
}

impl Launch {
    pub(crate) fn new(role: &str) -> Self {
        Self {
            role: role.to_owned(),
            args: Vec::new(),
        }
    }

    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    pub fn start(self) -> Result<Peer, Failure> {
        Err(Failure::Broken(format!(
            "role {} {:?}: the session cannot start processes yet",
            self.role, self.args
        )))
    }
}

/// A running role process, as its starter sees it. Dropping kills and reaps it.
pub struct Peer {}

/// The starter, as a role sees it.
pub struct Parent {
    args: Vec<String>,
}

impl Parent {
    pub fn args(&self) -> &[String] {
        &self.args
    }

    pub fn say(&mut self, line: &str) -> Result<(), Failure> {
        println!("{line}");
        Ok(())
    }
}
