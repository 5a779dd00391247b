//! Known defects are compiled in on request only: no feature, dependency or default turns them on.

use serde_json::Value;

use super::Violation;

const FEATURE: &str = "seeded-bugs";
/// Swaps what threads share for the primitives of a test; asked for by hand only.
const SWAPPED: &str = "interleavings";
/// The packages whose feature of the same name may pass it on.
const HARNESSES: [&str; 2] = ["sickbay-sim", "sickbay-faults"];

pub(super) fn check(metadata: &Value) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let mut accuse = |what: String| violations.push(Violation::of_file(name, what));
        for (feature, list) in package["features"].as_object().into_iter().flatten() {
            let allowed = HARNESSES.contains(&name) && feature == FEATURE;
            for banned in [FEATURE, SWAPPED] {
                if !allowed && names(list).any(|named| named.ends_with(banned)) {
                    accuse(format!("the feature {feature} turns {banned} on"));
                }
            }
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if names(&dependency["features"]).any(|named| named.ends_with(FEATURE)) {
                let on = dependency["name"].as_str().unwrap_or_default();
                accuse(format!("the dependency on {on} turns {FEATURE} on"));
            }
        }
    }
    violations
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::check;

    fn told(name: &str, features: &Value, of_dependency: &Value) -> usize {
        let dependency = json!({"name": "sickbay-core", "features": of_dependency});
        check(&json!({"packages": [{"name": name, "features": features, "dependencies": [dependency]}]}))
            .len()
    }

    #[test]
    fn only_the_simulator_may_pass_the_defects_on_and_only_by_that_name() {
        let passed_on = json!(["sickbay-core/seeded-bugs"]);
        assert_eq!(told("sickbay-sim", &json!({"seeded-bugs": passed_on}), &json!([])), 0);
        assert_eq!(told("sickbay-core", &json!({"seeded-bugs": []}), &json!([])), 0);
        assert_eq!(told("sickbay-sim", &json!({"default": passed_on}), &json!([])), 1);
        assert_eq!(told("sickbay-sim", &json!({"default": ["seeded-bugs"]}), &json!([])), 1);
        assert_eq!(told("sickbay-cli", &json!({"seeded-bugs": passed_on}), &json!([])), 1);
        assert_eq!(told("sickbay-cli", &json!({}), &json!(["seeded-bugs"])), 1);
        assert_eq!(told("sickbay-worker", &json!({"interleavings": ["dep:shuttle"]}), &json!([])), 0);
        assert_eq!(told("sickbay-worker", &json!({"default": ["interleavings"]}), &json!([])), 1);
    }
}
