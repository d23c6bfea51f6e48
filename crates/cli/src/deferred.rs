//! Commands that are described to clap only when they are invoked or asked about: to describe all of
//! them takes a fifth of a command's start.

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, CommandFactory, Error, FromArgMatches, Subcommand};
use std::cell::Cell;

thread_local! {
    /// Nothing is put off.
    static WHOLE: Cell<bool> = const { Cell::new(false) };
}

/// The whole command line, for man pages and completions: clap copies the tree for `help` before it
/// asks for what was put off.
pub(crate) fn whole() -> Command {
    WHOLE.set(true);
    let command = crate::args::Args::command();
    WHOLE.set(false);
    command
}

/// The arguments or subcommands `T` of a command.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) T);

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        put_off(command, |command| described(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: Subcommand> Subcommand for Deferred<T> {
    fn augment_subcommands(command: Command) -> Command {
        put_off(command, |command| {
            described(command, T::augment_subcommands)
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        T::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

fn put_off(command: Command, describe: fn(Command) -> Command) -> Command {
    if WHOLE.get() {
        describe(command)
    } else {
        command.defer(describe)
    }
}

/// What `augment` adds, under the line that says what the command is for: `T` has one of its own.
fn described(command: Command, augment: fn(Command) -> Command) -> Command {
    let about = Resettable::from(command.get_about().cloned());
    let long = Resettable::from(command.get_long_about().cloned());
    augment(command).about(about).long_about(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The help of `command` and of all below it, but for clap's own `help`.
    fn pages(command: &mut Command, pages: &mut Vec<String>) {
        pages.push(command.render_long_help().to_string());
        for below in command.get_subcommands_mut() {
            if below.get_name() != "help" {
                self::pages(below, pages);
            }
        }
    }

    #[test]
    fn what_is_put_off_reads_the_same() {
        let [deferred, whole] = [crate::args::Args::command(), whole()].map(|mut command| {
            command.build();
            let mut all = Vec::new();
            pages(&mut command, &mut all);
            all
        });
        assert!(deferred.len() > 20, "{}", deferred.len());
        assert_eq!(deferred, whole);
    }
}
