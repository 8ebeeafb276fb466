use super::*;
use proptest::prelude::*;
use rstest::rstest;

fn settings(variables: &[(&str, &str)]) -> Settings {
    Settings::read(&|name| {
        variables
            .iter()
            .find(|(variable, _)| *variable == name)
            .map(|(_, value)| value.as_bytes().to_vec())
    })
}

#[test]
fn nothing_set_is_no_budget_anywhere() {
    let settings = settings(&[]);
    assert!(!settings.any_budget());
    assert_eq!(settings.budgets(), [None; MAX_DEVICES]);
    assert_eq!(settings.ledger, PathBuf::from(DEFAULT_LEDGER));
    assert_eq!(settings.log_level, None);
    assert_eq!(settings.remarks, []);
}

#[rstest]
#[case(&[], 0)]
#[case(&[("CUDA_DEVICE_MEMORY_LIMIT", "4g"), ("CUDA_DEVICE_SM_LIMIT", "30")], 0)]
#[case(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "4g")], 1)]
#[case(&[("CUDA_DEVICE_MEMORY_LIMIT", "4g"), ("RINGFENCE_MEMORY_2", "1g")], 3)]
#[case(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "4g"), ("RINGFENCE_COMPUTE_1", "30")], 2)]
fn a_budget_of_its_own_tells_a_device_apart(#[case] set: &[(&str, &str)], #[case] devices: usize) {
    assert_eq!(settings(set).told_apart(), devices);
}

#[rstest]
#[case("0")]
#[case("")]
#[case("  ")]
#[case("0g")]
fn zero_and_blank_are_no_budget(#[case] text: &str) {
    assert!(
        !settings(&[
            ("CUDA_DEVICE_MEMORY_LIMIT", text),
            ("RINGFENCE_MEMORY_3", text)
        ])
        .any_budget()
    );
}

#[test]
fn the_default_holds_where_a_device_has_none_of_its_own() {
    let settings = settings(&[
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "1g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_2", "0"),
    ]);
    assert_eq!(
        settings.memory(DeviceIndex(0)),
        Budget::Limited(Bytes::gib(4))
    );
    assert_eq!(
        settings.memory(DeviceIndex(1)),
        Budget::Limited(Bytes::gib(1))
    );
    assert_eq!(
        settings.memory(DeviceIndex(2)),
        Budget::Limited(Bytes::gib(4))
    );
    assert_eq!(
        settings.memory(DeviceIndex(31)),
        Budget::Limited(Bytes::gib(4))
    );
}

#[test]
fn our_names_win_and_a_disagreement_is_remarked_once() {
    let settings = settings(&[
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
        ("RINGFENCE_MEMORY", "2g"),
    ]);
    assert_eq!(
        settings.memory(DeviceIndex(7)),
        Budget::Limited(Bytes::gib(2))
    );
    assert_eq!(
        settings.remarks,
        [Remark::Disagreement {
            used: "RINGFENCE_MEMORY".to_owned(),
            ignored: "CUDA_DEVICE_MEMORY_LIMIT".to_owned()
        }]
    );
}

#[test]
fn equal_readings_are_no_disagreement() {
    assert_eq!(
        settings(&[
            ("CUDA_DEVICE_MEMORY_LIMIT", "4096m"),
            ("RINGFENCE_MEMORY", "4GiB")
        ])
        .remarks,
        []
    );
}

#[rstest]
#[case("junk")]
#[case("4 apples")]
#[case("-4g")]
#[case("99999999999999999999")]
fn what_does_not_parse_names_its_variable_and_grants_nothing(#[case] text: &str) {
    let settings = settings(&[("CUDA_DEVICE_MEMORY_LIMIT_1", text)]);
    assert_eq!(
        settings.unparsable(),
        Some(("CUDA_DEVICE_MEMORY_LIMIT_1", text))
    );
    assert_eq!(settings.budgets()[1], Some(Bytes::ZERO));
    assert_eq!(settings.budgets()[0], None);
    assert!(settings.any_budget());
}

#[test]
fn a_device_beyond_the_ledger_gets_nothing_under_a_budget() {
    assert_eq!(
        settings(&[("CUDA_DEVICE_MEMORY_LIMIT", "4g")]).memory(DeviceIndex(64)),
        Budget::Limited(Bytes::ZERO)
    );
    assert_eq!(settings(&[]).memory(DeviceIndex(64)), Budget::Unlimited);
}

#[rstest]
#[case("0")]
#[case("")]
#[case("100")]
#[case("400")]
fn nothing_and_all_of_a_device_are_no_compute_budget(#[case] text: &str) {
    let settings = settings(&[("CUDA_DEVICE_SM_LIMIT", text)]);
    assert_eq!(settings.compute(DeviceIndex(0)), ComputeBudget::Unlimited);
    assert!(!settings.any_budget());
}

#[test]
fn compute_budgets_are_read_by_device_and_our_names_win() {
    let settings = settings(&[
        ("CUDA_DEVICE_SM_LIMIT", "30"),
        ("CUDA_DEVICE_SM_LIMIT_1", "100"),
        ("CUDA_DEVICE_SM_LIMIT_2", "45"),
        ("RINGFENCE_COMPUTE_2", "12.5%"),
    ]);
    let budgets = [0, 1, 2, 31].map(|device| settings.compute(DeviceIndex(device)));
    assert_eq!(
        budgets,
        [
            ComputeBudget::Limited(3000),
            ComputeBudget::Unlimited,
            ComputeBudget::Limited(1250),
            ComputeBudget::Limited(3000),
        ]
    );
    assert_eq!(settings.remarks.len(), 1);
    assert!(settings.any_budget() && settings.any_compute_budget());
    assert_eq!(settings.budgets(), [None; MAX_DEVICES]);
}

#[test]
fn a_compute_budget_that_does_not_parse_names_its_variable() {
    let settings = settings(&[("CUDA_DEVICE_SM_LIMIT_3", "most")]);
    assert_eq!(
        settings.unparsable(),
        Some(("CUDA_DEVICE_SM_LIMIT_3", "most"))
    );
    assert!(settings.any_budget());
}

#[rstest]
#[case("disable", ComputeBudget::Unlimited)]
#[case("DISABLE", ComputeBudget::Unlimited)]
#[case("default", ComputeBudget::Limited(2000))]
#[case("FORCE", ComputeBudget::Limited(2000))]
#[case("sometimes", ComputeBudget::Limited(2000))]
fn the_policy_keeps_or_drops_compute_budgets(#[case] policy: &str, #[case] budget: ComputeBudget) {
    let settings = settings(&[
        ("CUDA_DEVICE_SM_LIMIT", "20"),
        ("GPU_CORE_UTILIZATION_POLICY", policy),
        ("CUDA_TASK_PRIORITY", "0"),
    ]);
    assert_eq!(settings.any_budget(), budget != ComputeBudget::Unlimited);
    assert_eq!(settings.compute(DeviceIndex(5)), budget);
    assert_eq!(settings.task_priority, TaskPriority(0));
}

#[rstest]
#[case(&[("RINGFENCE_LEDGER", "/l"), ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/c.cache")], "/l")]
#[case(&[("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/c.cache")], "/c.cache.ringfence")]
#[case(&[("RINGFENCE_LEDGER", ""), ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "")], DEFAULT_LEDGER)]
fn the_ledger_lies_where_the_settings_say(#[case] variables: &[(&str, &str)], #[case] path: &str) {
    assert_eq!(settings(variables).ledger, PathBuf::from(path));
}

#[test]
fn choices_are_read_and_a_meaningless_one_keeps_the_default() {
    let read = settings(&[
        ("RINGFENCE_CONTEXT_CHARGE", "Free"),
        ("LIBCUDA_LOG_LEVEL", " 4 "),
        ("HAMI_VK_TRACE", "1"),
        ("RINGFENCE_VK_BUDGET", "inflate"),
        ("RINGFENCE_TRACE", "/t"),
    ]);
    assert_eq!(read.context_charge, ContextCharge::Free);
    assert_eq!(read.log_level, Some(LogLevel(4)));
    assert!(read.vulkan_trace);
    assert_eq!(read.budget_report, BudgetReport::Inflate);
    assert_eq!(read.trace, Some(PathBuf::from("/t")));

    let read = settings(&[
        ("RINGFENCE_CONTEXT_CHARGE", "perhaps"),
        ("LIBCUDA_LOG_LEVEL", "9"),
    ]);
    assert_eq!(read.context_charge, ContextCharge::Count);
    assert_eq!(read.log_level, None);
    assert_eq!(read.remarks.len(), 2);
}

#[test]
fn what_a_ledger_says_fills_only_what_is_not_said() {
    let mut read = settings(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "4g")]);
    read.adopt(DeviceIndex(0), Some(Bytes::gib(8)), 0);
    read.adopt(DeviceIndex(1), Some(Bytes::gib(2)), 2_500);
    read.adopt(DeviceIndex(64), Some(Bytes::gib(2)), 2_500);
    assert_eq!(
        [0, 1, 2].map(|device| read.memory(DeviceIndex(device))),
        [
            Budget::Limited(Bytes::gib(4)),
            Budget::Limited(Bytes::gib(2)),
            Budget::Unlimited
        ]
    );
    assert_eq!(
        [0, 1].map(|device| read.compute(DeviceIndex(device))),
        [ComputeBudget::Unlimited, ComputeBudget::Limited(2_500)]
    );
    assert!(settings(&[]).memory(DeviceIndex(0)) == Budget::Unlimited);
}

#[test]
fn a_ledgers_compute_budget_holds_where_the_policy_is_disabled() {
    let mut read = settings(&[
        ("GPU_CORE_UTILIZATION_POLICY", "disable"),
        ("CUDA_DEVICE_SM_LIMIT", "50"),
    ]);
    read.adopt(DeviceIndex(0), None, 0);
    assert!(!read.any_compute_budget());
    read.adopt(DeviceIndex(0), None, 2_500);
    assert_eq!(
        [0, 1].map(|device| read.compute(DeviceIndex(device))),
        [ComputeBudget::Limited(2_500), ComputeBudget::Unlimited]
    );
}

proptest! {
    #[test]
    fn any_environment_is_read(values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 8)) {
        let names = [
            "RINGFENCE_MEMORY", "RINGFENCE_MEMORY_0", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_31",
            "RINGFENCE_LEDGER", "RINGFENCE_CONTEXT_CHARGE", "LIBCUDA_LOG_LEVEL", "HAMI_VK_TRACE",
        ];
        let read = Settings::read(&|name| names.iter().position(|known| *known == name).map(|place| values[place].clone()));
        // A budget is granted only where one was read; what could not be read is never unlimited.
        for device in DeviceIndex::all() {
            let granted = read.budgets()[device.0 as usize];
            match read.memory(device) {
                Budget::Unlimited => prop_assert_eq!(granted, None),
                Budget::Limited(bytes) => { prop_assert_eq!(granted, Some(bytes)); prop_assert_ne!(bytes, Bytes::ZERO); }
                Budget::Unparsable { .. } => prop_assert_eq!(granted, Some(Bytes::ZERO)),
            }
        }
    }
}

#[rstest]
#[case("inflate", Some(BudgetReport::Inflate))]
#[case(" Inflate ", Some(BudgetReport::Inflate))]
#[case("standard", Some(BudgetReport::Standard))]
#[case("inflate: Kit Engine, b", Some(BudgetReport::InflateFor(vec!["Kit Engine".to_owned(), "b".to_owned()])))]
#[case("inflate:", None)]
#[case("inflate:,", None)]
#[case("standard:x", None)]
#[case("inflated", None)]
fn the_report_is_read(#[case] text: &str, #[case] report: Option<BudgetReport>) {
    let read = settings(&[("RINGFENCE_VK_BUDGET", text)]);
    assert_eq!(read.remarks.is_empty(), report.is_some());
    assert_eq!(read.budget_report, report.unwrap_or_default());
}

#[test]
fn only_a_named_engine_is_told_the_drivers_budget() {
    let named = BudgetReport::InflateFor(vec!["Kit".to_owned()]);
    assert!(named.inflates(Some("Kit")));
    assert!(!named.inflates(Some("kit 2")) && !named.inflates(None));
    assert!(BudgetReport::Inflate.inflates(None) && !BudgetReport::Standard.inflates(Some("Kit")));
}

#[rstest]
#[case(&[("RINGFENCE_REQUIRED", "1")], true)]
#[case(&[("RINGFENCE_REQUIRED", "yes"), ("RINGFENCE_COMPUTE", "50")], true)]
#[case(&[("RINGFENCE_REQUIRED", "1"), ("CUDA_DEVICE_MEMORY_LIMIT_0", "0")], true)]
#[case(&[("RINGFENCE_REQUIRED", "1"), ("CUDA_DEVICE_MEMORY_LIMIT_3", "4g")], false)]
#[case(&[("RINGFENCE_REQUIRED", "0")], false)]
#[case(&[("RINGFENCE_REQUIRED", " ")], false)]
#[case(&[], false)]
fn who_is_required_to_have_a_budget_and_has_none_gets_nothing(
    #[case] set: &[(&str, &str)],
    #[case] refused: bool,
) {
    let mut settings = settings(set);
    settings.hold_to_required();
    assert_eq!(settings.refusal().is_some(), refused);
    assert!(!refused || settings.any_budget());
    let refusal = settings.refusal().map(|refusal| refusal.to_string());
    assert!(refusal.is_none_or(|text| text.contains("RINGFENCE_REQUIRED")));
}

#[test]
fn a_budget_that_a_ledger_says_is_the_required_one() {
    let mut settings = settings(&[("RINGFENCE_REQUIRED", "1")]);
    settings.adopt(DeviceIndex(0), Some(Bytes(1 << 30)), 0);
    settings.hold_to_required();
    assert_eq!(settings.refusal(), None);
}

#[rstest]
#[case("RINGFENCE_MEMROY_0", Some("RINGFENCE_MEMORY_0"))]
#[case("RINGFENCE_MEMORY0", Some("RINGFENCE_MEMORY"))]
#[case("RINGFENCE_LEGDER", Some("RINGFENCE_LEDGER"))]
#[case("RINGFENCE_REQUIRE", Some("RINGFENCE_REQUIRED"))]
#[case("RINGFENCE_SOMETHING_ELSE", None)]
fn a_name_that_is_no_setting_is_remarked_on(#[case] name: &str, #[case] nearest: Option<&str>) {
    let mut settings = settings(&[]);
    settings.look_through([name, "RINGFENCE_MEMORY_7", "RINGFENCE_WORLD", "PATH"].into_iter());
    let remark = Remark::Unknown {
        variable: name.to_owned(),
        nearest: nearest.map(str::to_owned),
    };
    assert_eq!(settings.remarks, [remark]);
    assert_eq!(settings.refusal(), None);
}

#[rstest]
#[case("RINGFENCE_MEMORY_01")]
#[case("RINGFENCE_MEMORY_+1")]
#[case("RINGFENCE_COMPUTE_64")]
#[case("CUDA_DEVICE_MEMORY_LIMIT_99")]
#[case("CUDA_DEVICE_SM_LIMIT_4294967296")]
fn an_index_that_is_no_devices_refuses_all(#[case] name: &str) {
    assert!(!is_setting(name));
    let mut settings = settings(&[(name, "1g")]);
    settings.look_through([name].into_iter());
    let refusal = settings.refusal().expect("refused").to_string();
    assert!(refusal.contains(name), "{refusal}");
}

#[rstest]
#[case("RINGFENCE_LEDGER", "tenant.ledger")]
#[case("CUDA_DEVICE_MEMORY_SHARED_CACHE", "./vgpu.cache")]
fn a_ledger_that_moves_with_the_directory_refuses_all(#[case] name: &str, #[case] path: &str) {
    let mut held = settings(&[(name, path), ("RINGFENCE_MEMORY", "1g")]);
    held.hold_to_one_ledger();
    let refusal = held.refusal().expect("refused").to_string();
    assert!(refusal.contains(path), "{refusal}");
    let mut free = settings(&[(name, path)]);
    free.hold_to_one_ledger();
    assert_eq!(free.refusal(), None);
}
