//! The command `deeppool man`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_mangen::Man as Page;

use super::output::print_message;

/// Write the man pages of this command and of its subcommands
#[derive(Args)]
#[command(after_help = "\
Examples:
  deeppool man ~/.local/share/man/man1      # then: man deeppool-plan")]
pub(crate) struct Man {
    /// Output folder; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    /// Writes the man pages of `command`, the whole command line of this program, and of its
    /// subcommands.
    ///
    /// # Errors
    /// If the folder or a page cannot be written.
    pub(crate) fn run(self, mut command: clap::Command) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        // Gives subcommands their full names and usage.
        command.build();
        let mut pages = 0;
        let mut commands = vec![command];
        while let Some(command) = commands.pop() {
            let page = Page::new(command.clone());
            let mut text = Vec::new();
            page.render(&mut text)?;
            command_line::files::write(self.folder.join(page.get_filename()), text)?;
            pages += 1;
            commands
                .extend(command.get_subcommands().filter(|command| command.get_name() != "help").cloned());
        }
        print_message!("{pages} man pages in {}", self.folder.display());
        Ok(())
    }
}
