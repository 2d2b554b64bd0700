//! Running a scenario once for each seam call that it makes.

use std::any::Any;
use std::future::Future;

use tokio::task::JoinSet;

use super::plan::{FaultPlan, ways_to_fail};

/// Runs `scenario` undisturbed, and then with every seam call done twice: it must end the same.
///
/// The scenario makes its own fresh store, wraps it with the plan it is given, runs to its end, and asserts what must
/// hold. Returns the calls of the undisturbed run, so that a test can check that it meant what it ran.
///
/// # Panics
///
/// If the scenario does.
pub async fn repeat_every_call<Run>(scenario: impl Fn(FaultPlan) -> Run) -> Vec<&'static str>
where
    Run: Future<Output = ()> + Send + 'static,
{
    let made = undisturbed(&scenario).await;
    run(scenario(FaultPlan::repeating()), || "with every seam call done twice".to_owned()).await;
    made
}

/// Runs `scenario` undisturbed, and then once for each seam call of that run and each way in which that call can fail:
/// before it is done, after it, and for a commit without anyone knowing.
///
/// The scenario makes its own fresh store, wraps it with the plan it is given, runs to its end however often that
/// takes, and asserts what must hold, such as one effect for each message. Returns the calls of the undisturbed run.
///
/// # Panics
///
/// If the scenario does; the message names the call that failed.
pub async fn fail_at_each_call_in_turn<Run>(scenario: impl Fn(FaultPlan) -> Run) -> Vec<&'static str>
where
    Run: Future<Output = ()> + Send + 'static,
{
    let made = undisturbed(&scenario).await;
    for (place, call) in made.iter().enumerate() {
        for fault in ways_to_fail(call) {
            let name = || format!("with {fault:?} at `{call}`, call {} of {}", place + 1, made.len());
            run(scenario(FaultPlan::at(place, *fault)), name).await;
        }
    }
    made
}

async fn undisturbed<Run>(scenario: &impl Fn(FaultPlan) -> Run) -> Vec<&'static str>
where
    Run: Future<Output = ()> + Send + 'static,
{
    let plan = FaultPlan::new();
    run(scenario(plan.clone()), || "undisturbed".to_owned()).await;
    let made = plan.made();
    assert!(!made.is_empty(), "the scenario made no seam call: wrap its store with the plan it is given");
    made
}

/// Runs in a task of its own, so that a panic can be told with what was made to fail.
async fn run(scenario: impl Future<Output = ()> + Send + 'static, name: impl Fn() -> String) {
    let mut task = JoinSet::new();
    task.spawn(scenario);
    if let Some(Err(error)) = task.join_next().await {
        let why = error.try_into_panic().map_or_else(|error| error.to_string(), |panic| said(&*panic));
        panic!("the scenario fails {}: {why}", name());
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}
