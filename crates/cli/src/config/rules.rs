//! Classification rules (A5) and grouping rules (B4).

use sickbay::core::classify::{Classifier, RULES_MAX, Rule, StatusMatch, unreachable_rules};
use sickbay::core::signature::GroupingRule;
use sickbay::{Kind, Reason};
use toml::de::DeValue;

use super::nearest::list;
use super::problem::{Finding, Sort};
use super::read::{Field, Section, Span};
use super::shape;

/// What a rule can ask for.
const CONDITIONS: &[&str] =
    &["text", "regex", "exit_code", "http_status", "code", "message_type", "when_reason"];

/// One of the failure reasons.
pub(super) fn reason(field: &Field<'_>) -> Option<Reason> {
    let choices: Vec<(&str, Reason)> = Reason::ALL.iter().map(|reason| (reason.as_str(), *reason)).collect();
    field.word(&choices)
}

fn kind(field: &Field<'_>) -> Option<Kind> {
    let choices: Vec<(&str, Kind)> = Kind::ALL.iter().map(|kind| (kind.as_str(), *kind)).collect();
    field.word(&choices)
}

/// Reads the list `classification`.
pub(super) fn read_classification(field: &Field<'_>) -> Option<Vec<Rule>> {
    let items = field.items("a list of rules")?;
    if items.len() > RULES_MAX {
        field.wrong(format!("there are {} rules; at most {RULES_MAX} are allowed", items.len()));
        return None;
    }
    let (count, mut rules, mut places) = (items.len(), Vec::new(), Vec::new());
    for item in items {
        let Some(section) = item.section(&shape::CLASSIFICATION) else { continue };
        let Some(rule) = read_rule(&section) else { continue };
        rules.push(rule);
        places.push(section.place_of(CONDITIONS));
    }
    // A rule that could not be read might be the one that makes another unreachable, or not.
    if rules.len() == count {
        report_unreachable(field, &rules, &places);
    }
    Some(rules)
}

fn report_unreachable(field: &Field<'_>, rules: &[Rule], places: &[Span]) {
    for (earlier, later) in unreachable_rules(rules) {
        let same = { Rule { kind: rules[later].kind, ..rules[earlier].clone() } } == rules[later];
        let message = if same { "this rule is given twice" } else { "this rule can never match" };
        field.report(
            Finding::new(places[later].clone(), message)
                .related(places[earlier].clone(), "this earlier rule matches whatever it would match")
                .help("the first rule that matches wins; put the narrower one first, or remove one"),
        );
    }
}

fn read_rule(section: &Section<'_>) -> Option<Rule> {
    let text_of = |key| section.get(key).map(|field: Field<'_>| field.text().map(str::to_owned));
    let status = section.get("http_status").map(|field| read_status(&field));
    let exit_code = section.get("exit_code").map(|field| field.exit_code());
    let when_reason = section.get("when_reason").map(|field| reason(&field));
    let set_reason = section.get("reason").map(|field| reason(&field));
    let kind_field = section.demand("kind", "`kind = \"poison\"`; it can be transient, poison or unknown");
    let words = ["name", "text", "regex", "code", "message_type"].map(text_of);
    let kind = kind_field.and_then(|field| kind(&field));
    // Each is `Some(None)` where a value was given and was wrong; that was reported.
    let [name, text, regex, code, message_type] = words.map(Given::transpose_given);
    let rule = Rule {
        name: name?,
        text: text?,
        regex: regex?,
        exit_code: exit_code.transpose_given()?,
        http_status: status.transpose_given()?,
        code: code?,
        message_type: message_type?,
        reason: when_reason.transpose_given()?,
        kind: kind?,
        set_reason: set_reason.transpose_given()?,
    };
    check_rule(section, &rule).then_some(rule)
}

/// Not given, given and right, given and wrong.
trait Given<T> {
    /// `None` if a value was given and is wrong.
    fn transpose_given(self) -> Option<Option<T>>;
}

impl<T> Given<T> for Option<Option<T>> {
    fn transpose_given(self) -> Option<Option<T>> {
        match self {
            None => Some(None),
            Some(None) => None,
            Some(Some(value)) => Some(Some(value)),
        }
    }
}

fn read_status(field: &Field<'_>) -> Option<StatusMatch> {
    let text = match field.value() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        _ => {
            field.report(field.expected("an HTTP status such as 503, \"5xx\" or \"500..504\""));
            return None;
        }
    };
    text.parse().map_err(|error: sickbay::core::classify::InvalidStatus| field.wrong(error.to_string())).ok()
}

/// Lets the core judge the rule and finds the place it speaks of.
fn check_rule(section: &Section<'_>, rule: &Rule) -> bool {
    let Err(error) = Classifier::new(std::slice::from_ref(rule)) else { return true };
    let problem = error.problem();
    if let Some(field) = section.get("regex").filter(|_| problem.starts_with("regex")) {
        let pattern = rule.regex.as_deref().unwrap_or_default();
        field.report(bad_pattern(&field, pattern).unwrap_or_else(|| Finding::new(field.span(), problem)));
        return false;
    }
    let words = ["text", "code", "message_type"];
    let blamed = words.into_iter().find(|word| problem.replace(' ', "_").starts_with(word));
    match blamed.and_then(|word| section.get(word)) {
        Some(field) => {
            let rest = problem.get(field.key().len()..).unwrap_or_default();
            field.wrong(format!("`{}`{rest}", field.key()));
        }
        None => {
            let help = match rule.set_reason {
                Some(reason) => {
                    format!("`reason` is what is recorded; a condition is `when_reason = \"{reason}\"`")
                }
                None => format!("add a condition: {}", list(CONDITIONS.iter().copied())),
            };
            let message = problem.replacen("it has", "this rule has", 1);
            section.report(Finding::new(section.span(), message).sort(Sort::Clash).help(help));
        }
    }
    false
}

/// What is wrong with a regular expression, with a caret under the very character where possible.
fn bad_pattern(field: &Field<'_>, pattern: &str) -> Option<Finding> {
    let (offset, problem) = match regex_syntax::parse(pattern).err()? {
        regex_syntax::Error::Parse(error) => (error.span().start.offset, error.kind().to_string()),
        regex_syntax::Error::Translate(error) => (error.span().start.offset, error.kind().to_string()),
        _ => return None,
    };
    let character = pattern.get(..offset)?.chars().count() + 1;
    let message = format!("the regular expression is wrong at character {character}: {problem}");
    Some(Finding::new(field.inside(offset).unwrap_or(field.span()), message))
}

/// Reads the list `grouping`.
pub(super) fn read_grouping(field: &Field<'_>) -> Option<Vec<GroupingRule>> {
    let mut known: Vec<(GroupingRule, Span)> = Vec::new();
    for item in field.items("a list of rules")? {
        let Some(section) = item.section(&shape::GROUPING) else { continue };
        let name = section.demand("name", "`name = \"bank-down\"`");
        let pattern = section.demand("pattern", "`pattern = \"bank .* unavailable\"`");
        let (Some(name), Some(pattern)) = (name, pattern) else { continue };
        let Some(rule) = read_grouping_rule(&name, &pattern) else { continue };
        if let Some((_, place)) = known.iter().find(|(earlier, _)| earlier.pattern() == rule.pattern()) {
            let finding =
                Finding::new(pattern.span(), "this rule can never match: its pattern is given twice");
            section.report(finding.related(place.clone(), "this earlier rule has the same pattern"));
        }
        known.push((rule, pattern.span()));
    }
    Some(known.into_iter().map(|(rule, _)| rule).collect())
}

fn read_grouping_rule(name: &Field<'_>, pattern: &Field<'_>) -> Option<GroupingRule> {
    let (name_text, pattern_text) = (name.text()?, pattern.text()?);
    if pattern_text.is_empty() {
        pattern.wrong("`pattern` is empty, so it would match every error");
        return None;
    }
    match GroupingRule::new(name_text, pattern_text) {
        Ok(rule) => Some(rule),
        Err(_) if name_text.trim().is_empty() => {
            name.wrong("`name` is empty, but the signature is made of it");
            None
        }
        Err(_) => {
            let finding = bad_pattern(pattern, pattern_text);
            let too_large =
                || Finding::new(pattern.span(), "the regular expression is too large; repeat less");
            pattern.report(finding.unwrap_or_else(too_large));
            None
        }
    }
}
