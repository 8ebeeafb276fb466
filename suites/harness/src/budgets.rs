//! Budgets as cases and commands write them: `0=23552MiB,1=4GiB`, `share`, or nothing.

use mock_device::Bytes;

/// One budget per device, `None` where the text sets none.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Budgets(Vec<Option<Bytes>>);

/// Why a budget's text does not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("budget \"{part}\": write DEVICE=SIZE, as in 0=4GiB")]
    Shape { part: String },
    #[error("budget \"{part}\": {reason}")]
    Size { part: String, reason: String },
    #[error("budget \"{part}\": the machine has {devices} GPU(s), counted from 0")]
    NoSuchDevice { part: String, devices: usize },
    #[error("budget \"{part}\": device {device} already has one")]
    Twice { part: String, device: usize },
}

impl Budgets {
    /// Reads a text for a machine whose devices are that large.
    pub fn read(text: &str, sizes: &[Bytes]) -> Result<Self, BudgetError> {
        if text == "share" {
            let half = |size: &Bytes| Some(Bytes::mib(size.0 / 2 / Bytes::mib(1).0));
            return Ok(Self(sizes.iter().map(half).collect()));
        }
        let mut budgets = vec![None; sizes.len()];
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let shape = || BudgetError::Shape {
                part: part.to_owned(),
            };
            let (device, size) = part.split_once('=').ok_or_else(shape)?;
            let device: usize = device.parse().map_err(|_| shape())?;
            let size = crate::size::read(size).map_err(|error| BudgetError::Size {
                part: part.to_owned(),
                reason: error.to_string(),
            })?;
            let devices = sizes.len();
            match budgets.get_mut(device) {
                None => {
                    return Err(BudgetError::NoSuchDevice {
                        part: part.to_owned(),
                        devices,
                    });
                }
                Some(Some(_)) => {
                    return Err(BudgetError::Twice {
                        part: part.to_owned(),
                        device,
                    });
                }
                Some(budget) => *budget = Some(size),
            }
        }
        Ok(Self(budgets))
    }

    pub fn get(&self, device: usize) -> Option<Bytes> {
        self.0.get(device).copied().flatten()
    }

    /// Each budgeted device with its budget.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Bytes)> {
        self.0
            .iter()
            .enumerate()
            .filter_map(|(device, budget)| budget.map(|budget| (device, budget)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [Bytes; 2] = [Bytes::gib(45), Bytes::gib(10)];

    #[test]
    fn each_device_gets_what_the_text_says() {
        let budgets = Budgets::read("1=4GiB, 0=23552MiB", &TWO).expect("it reads");
        assert_eq!(
            budgets.iter().collect::<Vec<_>>(),
            [(0, Bytes::mib(23552)), (1, Bytes::gib(4))]
        );
        assert_eq!(Budgets::read("", &TWO).expect("it reads").iter().count(), 0);
    }

    #[test]
    fn a_share_is_half_of_each_device() {
        let budgets = Budgets::read("share", &TWO).expect("it reads");
        assert_eq!(
            (budgets.get(0), budgets.get(1)),
            (Some(Bytes::mib(23040)), Some(Bytes::gib(5)))
        );
    }

    #[test]
    fn a_bad_part_is_named() {
        let part = |text: &str| text.to_owned();
        assert_eq!(
            Budgets::read("4GiB", &TWO),
            Err(BudgetError::Shape { part: part("4GiB") })
        );
        assert!(
            matches!(Budgets::read("0=4Gi", &TWO), Err(BudgetError::Size { part, .. }) if part == "0=4Gi")
        );
        assert_eq!(
            Budgets::read("2=1GiB", &TWO),
            Err(BudgetError::NoSuchDevice {
                part: part("2=1GiB"),
                devices: 2
            })
        );
        assert_eq!(
            Budgets::read("0=1GiB,0=2GiB", &TWO),
            Err(BudgetError::Twice {
                part: part("0=2GiB"),
                device: 0
            })
        );
    }
}
