//! Armed crash points happen at the right passing. In a process of its own: crash points belong to the whole process.
#![cfg(feature = "crashpoints")]

use oncebox_core::crashpoint::crashpoint;
use oncebox_testkit::crash::{Action, arm, disarm};
use oncebox_testkit::stays_pending;

#[tokio::test]
async fn an_armed_point_happens_once_at_the_passing_it_was_armed_for() {
    arm("claimed", Action::Fail, 3).unwrap();
    arm("committed", Action::Hang, 1).unwrap();
    for fails in [false, false, true, false, false] {
        assert_eq!(crashpoint("claimed").await.is_err(), fails);
    }
    assert!(stays_pending(crashpoint("committed")).await);
    crashpoint("committed").await.unwrap();

    arm("claimed", Action::Fail, 1).unwrap();
    disarm();
    crashpoint("claimed").await.unwrap();

    let error = arm("claim", Action::Abort, 1).unwrap_err();
    assert_eq!(error.to_string(), "cannot arm crash points: there is no crash point `claim`; did you mean `claimed`?");
}
