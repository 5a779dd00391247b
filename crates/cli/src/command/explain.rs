//! `sickbay explain`: the pages of `docs/errors`, in the binary.

use serde::Serialize;

use super::Env;
use crate::output::{Exit, Failure, Result, block};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The code, like SB0007 [default: list all]
    code: Option<String>,
}

macro_rules! pages {
    ($($code:literal),+ $(,)?) => {
        &[$(($code, include_str!(concat!("../../../../docs/errors/", $code, ".md")))),+]
    };
}

/// Every page; a test looks whether one is missing.
const PAGES: &[(&str, &str)] = pages![
    "SB0001", "SB0002", "SB0003", "SB0004", "SB0005", "SB0006", "SB0007", "SB0008", "SB0009", "SB0010",
    "SB0011", "SB0012", "SB0013", "SB0014", "SB0015", "SB0016", "SB0017", "SB0018", "SB0019", "SB0020",
    "SB0021", "SB0022", "SB0023", "SB0024", "SB0025", "SB0026", "SB0027", "SB0028", "SB0029", "SB0030",
    "SB0031", "SB0032", "SB0033", "SB0040", "SB0041", "SB0042", "SB0043", "SB0044", "SB0045", "SB0046",
    "SB0061", "SB0062", "SB0063", "SB0064", "SB0065", "SB0066", "SB0067", "SB0070", "SB0071", "SB0072",
    "SB0073", "SB0074",
];

#[derive(Serialize)]
struct Page {
    code: &'static str,
    title: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'static str>,
}

pub(crate) fn run(arguments: &Arguments, env: &Env) -> Result {
    let Some(code) = &arguments.code else { return list(env) };
    let wanted = normal(code);
    let Some(&(code, text)) = PAGES.iter().find(|(code, _)| *code == wanted) else {
        let message = format!("there is no error code {code:?}");
        return Err(Failure::new(Exit::NotFound, message).hint("list all codes with `sickbay explain`"));
    };
    env.out.answer(&Page { code, title: title(text), text: Some(text) }, |_| block(text, ""))?;
    Ok(Exit::Done)
}

fn list(env: &Env) -> Result {
    let pages: Vec<Page> =
        PAGES.iter().map(|&(code, text)| Page { code, title: title(text), text: None }).collect();
    env.out
        .answer(&pages, |_| pages.iter().map(|page| format!("{}  {}\n", page.code, page.title)).collect())?;
    Ok(Exit::Done)
}

/// `sb7` and `7` mean SB0007.
fn normal(code: &str) -> String {
    let upper = code.trim().to_ascii_uppercase();
    let digits = upper.strip_prefix("SB").unwrap_or(&upper);
    match digits.parse::<u16>() {
        Ok(number) => format!("SB{number:04}"),
        Err(_) => upper,
    }
}

fn title(text: &'static str) -> &'static str {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(": ").map_or(line, |(_, title)| title)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_page_of_the_documentation_is_in_the_binary() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .filter(|name| name.starts_with("SB"))
            .collect();
        files.sort();
        assert_eq!(files, PAGES.iter().map(|(code, _)| (*code).to_owned()).collect::<Vec<_>>());
    }

    #[test]
    fn a_page_begins_with_its_code() {
        for (code, text) in PAGES {
            assert!(text.starts_with(&format!("# {code}: ")), "{code}");
        }
    }
}
