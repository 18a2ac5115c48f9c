//! The command `deeppool completions`.

use clap::Args;
use clap_complete::{Shell, generate};

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  deeppool completions bash > ~/.local/share/bash-completion/completions/deeppool
  deeppool completions zsh > ~/.zfunc/_deeppool
  deeppool completions fish > ~/.config/fish/completions/deeppool.fish")]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    /// Prints a completion script for `command`, the whole command line of this program.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(crate) fn run(self, mut command: clap::Command) -> anyhow::Result<()> {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        generate(self.shell, &mut command, name, &mut script);
        command_line::files::write(command_line::files::STDOUT, script)?;
        Ok(())
    }
}
