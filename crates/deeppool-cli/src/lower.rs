//! The command `deeppool lower`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use layer_graph::LayerGraph;
use serde_json::json;

use super::costs::with_plan_path;
use super::inputs;
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, print_message};

/// Write the program of a plan: the steps of every rank in one iteration
///
/// The program is the one that `train` executes and `simulate` runs in virtual time, in the JSON
/// format `deeppool/program/v5`: steps with their dependencies, inputs and outputs, and collectives
/// in the order in which all ranks issue them. It is input for executors in other languages, such
/// as `deeppool.torch.BurstParallel` of the Python package.
///
/// With --dtensor, the command writes how the plan places tensors instead, in the JSON format
/// `deeppool/dtensor/v1`: for each layer a device mesh, and the placements of its parameters,
/// inputs and output as `torch.distributed.tensor` names them.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool plan --model digits-cnn --device cpu-core --gpus 4 --batch 32 -o plan.json
  deeppool lower --model digits-cnn --plan plan.json -o program.json
  deeppool lower --model digits-cnn --plan plan.json --rank 2 -o rank-2.json
  deeppool lower --model digits-cnn --plan plan.json --dtensor -o placements.json")]
pub(crate) struct Lower {
    #[command(flatten)]
    network: NetworkArgs,
    /// File of the plan (see `deeppool plan -o`)
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Write the steps of this rank only, with the collectives of all ranks
    #[arg(long)]
    rank: Option<usize>,
    /// Iteration, from 0, for plans with partial backpropagation (`plan --spb K`), which have K
    /// programs in rotation
    #[arg(long, value_name = "N")]
    iteration: Option<usize>,
    /// Write the placements of the tensors of each layer, as `DTensor` names them, instead of
    /// the program
    #[arg(long, conflicts_with_all = ["rank", "iteration"])]
    dtensor: bool,
    /// File of the program; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Lower {
    /// Lowers the plan and writes the program.
    ///
    /// # Errors
    /// If the plan does not fit the network, an iteration is needed and not given, or writing
    /// fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_outputs([&self.output], self.json)?;
        let network = self.network.load()?;
        let plan = inputs::plan(&self.plan)?;
        let placement = with_plan_path(Some(&self.plan), plan.placement(&network))?;
        if self.dtensor {
            return self.write_dtensors(&network, &placement, plan.batch);
        }
        let options = plan.lowering.options(LowerOptions::default().optimizer);
        let training = LoweredTraining::new(&network, placement, plan.batch, options);
        let programs = training.programs()?;
        let program = match (self.iteration, programs) {
            (Some(iteration), _) => &programs[iteration % programs.len()],
            (None, [only]) => only,
            (None, several) => bail!(
                "the plan has partial backpropagation, so its iterations are {} different programs in turns: \
                 say which with --iteration N",
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
            print_message!(
                "wrote the program of {ranks} ranks with {collectives} collectives to {}",
                self.output.display()
            );
        }
        Ok(())
    }

    fn write_dtensors(
        &self,
        network: &LayerGraph,
        placement: &Placement,
        batch: usize,
    ) -> anyhow::Result<()> {
        let json = with_plan_path(Some(&self.plan), placement.to_dtensor_json(network, batch))?;
        command_line::files::write(&self.output, json + "\n")?;
        let (model, ranks) = (network.name(), placement.world());
        if self.json {
            print_json(&json!({ "output": self.output, "model": model, "ranks": ranks }));
        } else {
            print_message!("wrote the placements of {model} on {ranks} ranks to {}", self.output.display());
        }
        Ok(())
    }
}
