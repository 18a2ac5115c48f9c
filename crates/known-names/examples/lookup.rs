//! Looks up what a user typed among the names that a command knows.
//!
//!     cargo run -p known-names --example lookup -- ResNet50 vgg61

use known_names::{find, hint};

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
