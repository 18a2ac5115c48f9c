//! Looks up typed names among the known names of a command.
//!
//!     cargo run -p command-line --example lookup -- ResNet50 vgg61

use command_line::names::{find, hint};

const MODELS: [&str; 4] = ["resnet-18", "resnet-50", "vgg16", "gpt2"];

fn main() {
    for typed in std::env::args().skip(1) {
        match find(&typed, MODELS) {
            Some(model) => println!("{typed}: {model}"),
            None => println!(
                "unknown model `{typed}`; known models: {}{}",
                MODELS.join(", "),
                hint(&typed, MODELS)
            ),
        }
    }
}
