//! A bounded number of seeds, in every build. More: `cargo run --release -p oncebox-sim -- --seeds 100000`.

use oncebox_sim::{Hazard, Scenario, simulate};

#[test]
fn every_promise_holds_under_what_a_seed_decides() {
    for seed in 0..250 {
        let verdict = simulate(Scenario::new(seed), false);
        assert!(verdict.is_good(), "{:#?}\nrepeat it: {}", verdict.wrongs, verdict.command());
    }
}

/// Each for itself, so that what one hides is seen under another.
#[test]
fn every_promise_holds_under_each_hazard() {
    for hazard in Hazard::USUAL {
        for seed in 1_000..1_040 {
            let verdict = simulate(Scenario::with(seed, &[*hazard]), false);
            assert!(verdict.is_good(), "{hazard:?}: {:#?}\nrepeat it: {}", verdict.wrongs, verdict.command());
        }
    }
}

#[test]
fn a_seed_always_makes_the_same_run() {
    for seed in 0..60 {
        let [first, second] = [(); 2].map(|()| simulate(Scenario::new(seed), false));
        assert_eq!(first.hash, second.hash, "two runs of seed {seed} differ");
    }
    let hashes: std::collections::HashSet<u64> =
        (0..20).map(|seed| simulate(Scenario::new(seed), false).hash).collect();
    assert_eq!(hashes.len(), 20, "and other seeds make other runs");
}

/// Without this, a simulation in which nothing ever goes wrong would pass.
#[test]
fn the_seeds_cover_what_can_go_wrong() {
    let scenarios: Vec<Scenario> = (0..400).map(Scenario::new).collect();
    let some = |of: fn(&Scenario) -> bool| scenarios.iter().filter(|scenario| of(scenario)).count() >= 20;
    assert!(some(|s| s.ordered && s.stored) && some(|s| s.ordered && !s.stored));
    assert!(some(|s| s.processes > 1 && s.ordered) && some(|s| s.batch_handler) && some(Scenario::is_calm));
    assert!(some(|s| s.conflicts > 0) && some(|s| !s.outages.is_empty()) && some(|s| !s.ends.is_empty()));
    let endangered: Vec<Scenario> = (0..400).map(|seed| Scenario::with(seed, Hazard::ALL)).collect();
    let some_of = |of: fn(&Scenario) -> bool| endangered.iter().filter(|scenario| of(scenario)).count() >= 20;
    assert!(some_of(|s| !s.hazards.deploys.is_empty() && s.ordered && s.hazards.operator.is_some()));
    assert!(
        some_of(|s| s.hazards.panics > 0) && some_of(|s| s.hazards.foreign > 0) && some_of(|s| s.hazards.gap.is_some())
    );
    assert!(some_of(|s| s.hazards.zombies.is_some() && s.ordered) && some_of(|s| s.hazards.discards > 0));
    let verdicts: Vec<_> = scenarios.into_iter().take(30).map(|scenario| simulate(scenario, false)).collect();
    let (messages, deliveries, faults) = verdicts.iter().fold((0, 0, 0), |(messages, deliveries, faults), verdict| {
        (messages + verdict.messages, deliveries + verdict.deliveries, faults + verdict.faults)
    });
    assert!(deliveries > messages * 3 / 2 && faults > messages / 10, "{messages} {deliveries} {faults}");
}
