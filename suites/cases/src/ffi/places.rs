//! Where addresses lie: the file that is mapped there, and how far into it.

use std::path::PathBuf;

use super::library::Address;

/// What this process has mapped from files, as of one moment.
pub struct Places {
    mapped: Vec<Mapped>,
}

struct Mapped {
    from: u64,
    to: u64,
    offset: u64,
    file: PathBuf,
}

/// A place in a file: the same for every process that maps it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: PathBuf,
    pub offset: u64,
}

impl Places {
    pub fn of_this_process() -> std::io::Result<Self> {
        let text = std::fs::read_to_string("/proc/self/maps")?;
        Ok(Self {
            mapped: text.lines().filter_map(Mapped::read).collect(),
        })
    }

    /// None where no file is mapped at the address.
    pub fn of(&self, address: Address) -> Option<Place> {
        let number = address.number();
        let mapped = self
            .mapped
            .iter()
            .find(|mapped| (mapped.from..mapped.to).contains(&number))?;
        Some(Place {
            file: mapped.file.clone(),
            offset: number - mapped.from + mapped.offset,
        })
    }
}

impl Mapped {
    /// `address perms offset dev inode path`; the path may contain blanks.
    fn read(line: &str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let offset = words.nth(1)?;
        Some(Self {
            from: hex(from)?,
            to: hex(to)?,
            offset: hex(offset)?,
            file: PathBuf::from(&line[line.find('/')?..]),
        })
    }
}
