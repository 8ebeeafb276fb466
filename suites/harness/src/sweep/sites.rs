//! Where faults can hit a case, and which.

use std::collections::BTreeMap;

use mock_device::Api;
use mock_device::fault::{Alteration, Effect, fits};

use crate::traces::Traces;

/// One consultation: the `n`-th call that a role's process makes to the drivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub role: String,
    /// From 1.
    pub n: u64,
    /// Which of the role's calls of this entry point it is, from 1.
    pub nth: u64,
    pub api: Api,
    pub entry: String,
    /// The entry points of the two calls that its thread made before it, the latest last.
    pub before: [String; 2],
    /// It answers a code.
    pub answers: bool,
}

impl Site {
    /// The consultations of a run, in the order of its trace; what is no line of a call is left out.
    pub fn all(traces: &Traces) -> Vec<Self> {
        let mut sites = Vec::new();
        // Without a role: the harness's own look at NVML.
        for (role, lines) in traces.iter().filter(|(role, _)| !role.is_empty()) {
            let mut before: BTreeMap<u64, [String; 2]> = BTreeMap::new();
            let mut calls: BTreeMap<String, u64> = BTreeMap::new();
            for (n, line) in (1..).zip(lines) {
                let record: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
                let text = |field: &str| record.get(field).and_then(serde_json::Value::as_str);
                let api = Api::ALL
                    .into_iter()
                    .find(|api| text("api") == Some(api.name()));
                let (Some(api), Some(entry)) = (api, text("entry")) else {
                    continue;
                };
                // The first thread of a process has no number.
                let thread = record.get("thread").and_then(serde_json::Value::as_u64);
                let before = before.entry(thread.unwrap_or(1)).or_default();
                let [_, latest] = before.clone();
                let nth = calls.entry(entry.to_owned()).or_default();
                *nth += 1;
                sites.push(Self {
                    role: role.clone(),
                    n,
                    nth: *nth,
                    api,
                    entry: entry.to_owned(),
                    before: std::mem::replace(before, [latest, entry.to_owned()]),
                    answers: record.get("answer").is_some_and(|answer| !answer.is_null()),
                });
            }
        }
        sites
    }

    /// What makes it worth another run: the same call after the same two others is taken to be of the same place in the program.
    pub fn place(&self) -> (Api, String, [String; 2]) {
        (self.api, self.entry.clone(), self.before.clone())
    }

    /// Every effect, death aside, that this call can show.
    pub fn effects(&self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.answers {
            effects.extend(codes(self.api).iter().map(|&code| Effect::Result(code)));
            effects.push(Effect::Untouched);
        }
        let look_up = ["cuGetProcAddress*", "vk*ProcAddr", "cuGetExportTable"];
        if look_up.iter().any(|pattern| fits(pattern, &self.entry)) {
            effects.push(Effect::Altered(Alteration::NullFunction));
        }
        effects.push(Effect::Lost);
        effects
    }
}

/// What a driver that fails may answer: no memory, not supported here, lost or unknown.
fn codes(api: Api) -> &'static [i32] {
    match api {
        // OUT_OF_MEMORY, NOT_SUPPORTED, UNKNOWN
        Api::Cuda => &[2, 801, 999],
        // NOT_SUPPORTED, GPU_IS_LOST, UNKNOWN
        Api::Nvml => &[3, 15, 999],
        // OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_LOST
        Api::Vulkan => &[-1, -2, -4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_does_in_between_makes_no_new_place() {
        let line = |thread: &str, entry: &str| {
            format!(
                r#"{{"role":"case",{thread}"api":"cuda","entry":"{entry}","args":{{}},"answer":0}}"#
            )
        };
        let other = r#""thread":2,"#;
        let calls = [
            ("", "cuInit"),
            (other, "cuEventQuery"),
            ("", "cuCtxGetCurrent"),
            (other, "cuEventQuery"),
        ];
        let lines = calls.map(|(thread, entry)| line(thread, entry)).to_vec();
        let sites = Site::all(&Traces::from([("case".to_owned(), lines)]));
        let before = |index: usize| sites[index].before.clone();
        assert_eq!(before(2), [String::new(), "cuInit".to_owned()]);
        assert_eq!(before(3), [String::new(), "cuEventQuery".to_owned()]);
    }

    #[test]
    fn a_site_knows_its_number_and_what_came_before() {
        let line = |entry: &str, answer: &str| {
            format!(
                r#"{{"role":"case","api":"vulkan","entry":"{entry}","args":{{}},"answer":{answer}}}"#
            )
        };
        let lines = vec![
            line("vkGetInstanceProcAddr", "null"),
            line("vkCreateInstance", "\"VK_SUCCESS\""),
            line("vkDestroyInstance", "null"),
        ];
        let sites = Site::all(&Traces::from([("case".to_owned(), lines)]));
        let [look_up, create, destroy] = &sites[..] else {
            panic!("{sites:?}");
        };
        assert_eq!(
            (destroy.n, destroy.before[0].as_str()),
            (3, "vkGetInstanceProcAddr")
        );
        assert_eq!(destroy.effects(), [Effect::Lost]);
        assert!(create.effects().contains(&Effect::Result(-2)));
        assert!(
            look_up
                .effects()
                .contains(&Effect::Altered(Alteration::NullFunction))
        );
    }
}
