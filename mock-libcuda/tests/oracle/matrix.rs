//! All tables at once, for whoever wants the figures: `cargo test -p mock-libcuda --test oracle matrix -- --nocapture`.

use build_support::oracle::GENERATIONS;

use crate::{arguments, edge_table, errors, exports, lookup, nulls, values, visible};

#[test]
fn the_matrix_of_all_tables_is_printed() {
    println!(
        "libcuda of | exports | look-ups | NULLs before cuInit | attributes known | error names"
    );
    for generation in GENERATIONS {
        let evidence = match generation {
            470 | 615 | 999 => " (inferred)",
            _ => "",
        };
        let before = nulls::before_init(generation);
        println!(
            "{generation} | {} | {}{evidence} | {} | {} | {}",
            exports::compare(generation).short(),
            lookup::compare(generation).short(),
            before.map_or("not recorded".to_owned(), |score| score.short()),
            values::known(generation).short(),
            errors::compare(generation).short(),
        );
    }
    if let Some(score) = arguments::compare() {
        println!("arguments: {}", score.short());
    }
    for (what, score) in [
        ("NULLs, initialised", nulls::initialised()),
        ("edges", edge_table::compare()),
        ("visible devices", visible::compare()),
        ("error names and strings of 555", errors::compare(555)),
        ("error names and strings of 580", errors::compare(580)),
        ("attributes and limits", values::compare()),
    ] {
        score.say(what);
    }
}
