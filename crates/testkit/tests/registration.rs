//! A case that is written and not registered never runs, and nobody notices. This notices.

use std::fs;
use std::path::Path;

#[test]
fn every_case_is_in_the_list_of_its_suite() {
    for (suite, at_least) in [("store/inbox", 40), ("store/queue", 40), ("store/outbox", 45), ("source", 19)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(suite);
        let list = fs::read_to_string(folder.join("mod.rs")).unwrap();
        let listed: Vec<&str> = list.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
        let mut cases = 0;
        for file in fs::read_dir(&folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for (case, _) in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('<')) {
                // What runs the cases is none.
                if case != "run" {
                    assert!(listed.contains(&case), "{suite}: {case} is not registered");
                    cases += 1;
                }
            }
        }
        assert!(cases >= at_least, "{suite}: only {cases} cases were found, so this test looks in the wrong place");
    }
}
