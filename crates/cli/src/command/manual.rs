//! `bentpipe manual`: man pages and shell completions, made from the description of the arguments;
//! for whoever makes packages.

use crate::failure::{Blame, Failure};
use anyhow::Context;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::path::PathBuf;

/// Options of `manual`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to put them; made if it is not there
    folder: PathBuf,
}

/// Writes them.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    write(args).or_run()
}

fn write(args: &Args) -> anyhow::Result<()> {
    let folder = &args.folder;
    let doing = || format!("cannot write to {}", folder.display());
    fs::create_dir_all(folder).with_context(doing)?;
    let mut command = crate::deferred::whole();
    clap_mangen::generate_to(command.clone(), folder).with_context(doing)?;
    for entry in fs::read_dir(folder).with_context(doing)? {
        let path = entry.with_context(doing)?.path();
        if path.extension().is_some_and(|extension| extension == "1") {
            let page = fs::read_to_string(&path).with_context(doing)?;
            fs::write(&path, customary(&page)).with_context(doing)?;
        }
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "bentpipe", folder).with_context(doing)?;
    }
    Ok(())
}

/// `page` with the headings and the footer that readers of man pages know.
fn customary(page: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let lines = page.lines().map(|line| match line.strip_prefix(".TH ") {
        Some(title) => {
            let name = title.split_once(' ').map_or(title, |(name, _)| name);
            format!(".TH {name} 1 \"\" \"bentpipe {version}\"")
        }
        None => line.to_owned(),
    });
    let page = lines.collect::<Vec<_>>().join("\n") + "\n";
    let Some((before, examples)) = page.split_once(".SH EXTRA\nExamples:\n") else {
        return page.replace(".SH EXTRA\n", ".SH NOTES\n");
    };
    // As they stand, up to the first line that is no example.
    let length = examples
        .split_inclusive('\n')
        .take_while(|line| line.starts_with("  "))
        .map(str::len)
        .sum();
    let (examples, after) = examples.split_at(length);
    format!("{before}.SH EXAMPLES\n.nf\n{examples}.fi\n{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new");
        write(&Args {
            folder: folder.clone(),
        })
        .unwrap();
        for file in [
            "bentpipe.1",
            "bentpipe-gateway.1",
            "bentpipe-gateway-status.1",
            "bentpipe.bash",
            "_bentpipe",
            "bentpipe.fish",
        ] {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert!(text.contains("gateway"), "{file}: {text}");
        }
        let page = fs::read_to_string(folder.join("bentpipe-gateway-run.1")).unwrap();
        let title = format!(
            ".TH bentpipe-gateway-run 1 \"\" \"bentpipe {}\"\n",
            env!("CARGO_PKG_VERSION")
        );
        assert!(page.contains(&title), "{page}");
        assert!(page.contains("\n.SH EXAMPLES\n") && !page.contains("EXTRA"));
    }
}
