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
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "bentpipe", folder).with_context(doing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
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
    }
}
