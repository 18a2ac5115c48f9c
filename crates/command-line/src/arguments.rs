//! Arguments of a command, and messages about them.

use clap::{Command, Parser};

/// Parses the arguments of this process as [`Parser::try_parse`] does, but takes a negative number
/// after an option as its value, so that the error names the option and the valid numbers.
///
/// # Errors
/// That of clap, for invalid arguments and for `--help` and `--version`.
pub fn parse<P: Parser>() -> Result<P, clap::Error> {
    parse_from(std::env::args_os())
}

fn parse_from<P: Parser>(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<P, clap::Error> {
    let mut command = with_negative_numbers(P::command());
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns a command, with all of its subcommands, in which a negative number after an option is
/// its value.
#[must_use]
pub fn with_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let has_value = argument.get_action().takes_values();
        if has_value { argument.allow_negative_numbers(true) } else { argument }
    });
    command.mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::parse_from;
    use crate::message::one_line;

    #[derive(clap::Parser)]
    enum Program {
        Plan {
            #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8))]
            gpus: Option<u32>,
            #[arg(long, value_delimiter = ',')]
            shifts: Vec<i32>,
            #[arg(short)]
            verbose: bool,
        },
    }

    fn parse(line: &str) -> Result<Program, String> {
        let words = line.split(' ').map(Into::into);
        parse_from(words).map_err(|error| one_line(&error.to_string()))
    }

    #[test]
    fn negative_numbers_are_values() {
        let Ok(Program::Plan { gpus, shifts, verbose }) = parse("x plan --gpus 8 --shifts -1 -v") else {
            panic!("valid arguments");
        };
        assert_eq!((gpus, shifts, verbose), (Some(8), vec![-1], true));
        let refused = |line: &str| parse(line).err().expect("invalid arguments");
        assert_eq!(
            refused("x plan --gpus -3"),
            "error: invalid value '-3' for '--gpus <GPUS>': -3 is not in 1..=8"
        );
        assert!(refused("x plan --gpus -v").starts_with("error: a value is required for '--gpus <GPUS>'"));
        assert_eq!(
            refused("x plan --gpu 3"),
            "error: unexpected argument '--gpu' found; a similar argument exists: '--gpus'"
        );
    }
}
