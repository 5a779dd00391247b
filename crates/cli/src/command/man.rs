//! `sickbay man`.

use std::path::PathBuf;

use clap::CommandFactory as _;

use super::Env;
use crate::output::{Exit, Failure, Result, plural};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write a page for every command into this folder [default: print the first page]
    folder: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, env: &Env) -> Result {
    let mut command = super::Arguments::command();
    command.build();
    let Some(folder) = &arguments.folder else {
        let page = render(command).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        env.out.print(&String::from_utf8_lossy(&page))?;
        return Ok(Exit::Done);
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    let mut pages = 0;
    let mut waiting = vec![("sickbay".to_owned(), command)];
    while let Some((name, command)) = waiting.pop() {
        for child in
            command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help")
        {
            waiting.push((format!("{name}-{}", child.get_name()), child.clone()));
        }
        let path = folder.join(format!("{name}.1"));
        let written = render(command.name(name)).and_then(|page| std::fs::write(&path, page));
        written.map_err(|error| Failure::file(&path, &error))?;
        pages += 1;
    }
    let value = serde_json::json!({ "folder": folder, "pages": pages });
    env.out.answer(&value, |_| format!("{} in {}\n", plural(pages, "page"), folder.display()))?;
    Ok(Exit::Done)
}

fn render(command: clap::Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(page)
}
