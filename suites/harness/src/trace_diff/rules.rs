//! What may differ, as data: `fixtures/traces/machine.txt` names the numbers and texts that the machine decides,
//! `fixtures/traces/allowed.txt` the differences that are known, each with its reason.

use super::What;

const MACHINE: &str = include_str!("../../../../fixtures/traces/machine.txt");
const ALLOWED: &str = include_str!("../../../../fixtures/traces/allowed.txt");

/// Both lists.
#[derive(Debug)]
pub struct Rules {
    machine: Vec<Machine>,
    allowed: Vec<Allowed>,
}

/// `api entry argument  # reason`.
#[derive(Debug)]
struct Machine {
    api: String,
    entry: String,
    argument: String,
}

/// `api entry case left right  # reason`; left and right are answers, or `argument=value`. Calls without a counterpart: `-9` and `-0`
/// is up to nine of one case on the left and none on the right, `-` any number. Cases may be several, joined by commas.
#[derive(Debug)]
struct Allowed {
    api: String,
    entry: String,
    case: String,
    left: String,
    right: String,
    reason: String,
}

/// A line of a list that says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error("{list}: \"{line}\" is not of the form \"{form}  # reason\"")]
    Form {
        list: String,
        line: String,
        form: &'static str,
    },
}

impl Rules {
    /// The lists that the project keeps.
    pub fn shipped() -> Result<Self, RulesError> {
        Self::read("machine.txt", MACHINE, "allowed.txt", ALLOWED)
    }

    /// The project's machine list with another list of what is allowed.
    pub fn allowing(list: &str, allowed: &str) -> Result<Self, RulesError> {
        Self::read("machine.txt", MACHINE, list, allowed)
    }

    fn read(
        machine_list: &str,
        machine: &str,
        allowed_list: &str,
        allowed: &str,
    ) -> Result<Self, RulesError> {
        const MACHINE_FORM: &str = "api entry argument";
        const ALLOWED_FORM: &str = "api entry case left right";
        let machine = rows::<3>(machine_list, machine, MACHINE_FORM)?
            .into_iter()
            .map(|([api, entry, argument], _)| Machine {
                api,
                entry,
                argument,
            });
        let allowed = rows::<5>(allowed_list, allowed, ALLOWED_FORM)?
            .into_iter()
            .map(|([api, entry, case, left, right], reason)| Allowed {
                api,
                entry,
                case,
                left,
                right,
                reason,
            });
        Ok(Self {
            machine: machine.collect(),
            allowed: allowed.collect(),
        })
    }

    /// Whether this argument's number or text is the machine's.
    pub(super) fn machine_decides(&self, api: &str, entry: &str, argument: &str) -> bool {
        self.machine.iter().any(|row| {
            fits(&row.api, api) && fits(&row.entry, entry) && fits(&row.argument, argument)
        })
    }

    /// Why a difference is allowed, if it is.
    pub(super) fn reason(&self, api: &str, entry: &str, what: &What, case: &str) -> Option<String> {
        let (left, right) = match what {
            What::Answer { left, right } => (left.clone(), right.clone()),
            What::Argument { name, left, right } => {
                (format!("{name}={left}"), format!("{name}={right}"))
            }
        };
        self.allowed
            .iter()
            .find(|row| {
                fits(&row.api, api)
                    && fits(&row.entry, entry)
                    && fits_one(&row.case, case)
                    && fits(&row.left, &left)
                    && fits(&row.right, &right)
            })
            .map(|row| row.reason.clone())
    }

    /// Why so many calls of this entry point, left and right, may have no counterpart in a case, if they may.
    pub(super) fn reason_alone(
        &self,
        api: &str,
        entry: &str,
        case: &str,
        (left, right): (usize, usize),
    ) -> Option<String> {
        let within = |bound: &str, count| most(bound).is_some_and(|most| count <= most);
        self.allowed
            .iter()
            .filter(|row| within(&row.left, left) && within(&row.right, right))
            .find(|row| fits(&row.api, api) && fits(&row.entry, entry) && fits_one(&row.case, case))
            .map(|row| row.reason.clone())
    }
}

/// How many calls without a counterpart a column allows; `None` where it is about something else.
fn most(column: &str) -> Option<usize> {
    match column.strip_prefix('-')? {
        "" => Some(usize::MAX),
        digits => digits.parse().ok(),
    }
}

/// Fields of each line before its `#`, and the reason after it.
fn rows<const N: usize>(
    list: &str,
    text: &str,
    form: &'static str,
) -> Result<Vec<([String; N], String)>, RulesError> {
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let wrong = || RulesError::Form {
                list: list.to_owned(),
                line: line.to_owned(),
                form,
            };
            let (fields, reason) = line.split_once(" # ").ok_or_else(wrong)?;
            let fields: Vec<String> = fields.split_whitespace().map(str::to_owned).collect();
            let fields = fields.try_into().map_err(|_| wrong())?;
            Ok((fields, reason.trim().to_owned()))
        })
        .collect()
}

/// Whether a text fits one of several patterns.
fn fits_one(patterns: &str, text: &str) -> bool {
    patterns.split(',').any(|pattern| fits(pattern, text))
}

/// Whether a text fits a pattern, in which `*` stands for anything.
#[must_use]
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}
