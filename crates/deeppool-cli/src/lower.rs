use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use deeppool::program::{LowerOptions, LoweredTraining};
use serde_json::json;

use super::costs::in_plan;
use super::inputs;
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, say};

/// Write the program that a plan becomes: what every rank does in one iteration
///
/// It is what `train` executes and `simulate` runs in virtual time, as JSON of the format `deeppool/program/v1`: steps with what they
/// wait for, read and write, and collectives in the one order in which all ranks issue them. It is for executors in other languages;
/// `deeppool.torch.BurstParallel` of the Python package is one.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool plan --model digits-cnn --device cpu-core --gpus 4 --batch 32 -o plan.json
  deeppool lower --model digits-cnn --plan plan.json -o program.json
  deeppool lower --model digits-cnn --plan plan.json --rank 2 -o rank-2.json")]
pub(crate) struct Lower {
    #[command(flatten)]
    network: NetworkArgs,
    /// A plan that `deeppool plan -o` wrote
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Of this rank alone, with the collectives of all
    #[arg(long)]
    rank: Option<usize>,
    /// Of this iteration, from 0: with partial backpropagation (`plan --spb K`) there are K programs, which are executed in turns
    #[arg(long, value_name = "N")]
    iteration: Option<usize>,
    /// Where the program goes; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Lower {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs([&self.output], self.json)?;
        let network = self.network.load()?;
        let plan = inputs::plan(&self.plan)?;
        let placement = in_plan(Some(&self.plan), plan.placement(&network))?;
        let options = plan.lowering.options(LowerOptions::default().optimizer);
        let training = LoweredTraining::new(&network, placement, plan.batch, options);
        let programs = training.programs()?;
        let program = match (self.iteration, programs) {
            (Some(iteration), _) => &programs[iteration % programs.len()],
            (None, [only]) => only,
            (None, several) => bail!(
                "the plan has partial backpropagation, so its iterations are {} different programs in turns: say which with --iteration N",
                several.len()
            ),
        };
        command_line::files::write(&self.output, program.to_json(&network, self.rank)? + "\n")?;
        let (ranks, collectives) = (program.world(), program.collectives.len());
        if self.json {
            let model = network.name();
            print_json(
                &json!({ "output": self.output, "model": model, "ranks": ranks, "collectives": collectives }),
            );
        } else {
            say!(
                "wrote the program of {ranks} ranks with {collectives} collectives to {}",
                self.output.display()
            );
        }
        Ok(())
    }
}
