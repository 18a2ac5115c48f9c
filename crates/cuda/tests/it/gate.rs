//! Gates between streams.

use std::time::Duration;

use cuda::{Gate, Priority, Stream};

use super::kernels::{kernel, launch};
use super::on_emulated_device;

#[test]
fn a_shut_gate_withholds_the_work_of_another_stream_until_it_is_opened() {
    on_emulated_device(|emulator, context| {
        let [foreground, background] = [Priority::Foreground, Priority::Background];
        let [foreground, background] = [Stream::new(context, foreground)?, Stream::new(context, background)?];
        let gate = Gate::new(context, &foreground)?;
        let (layer, piece) = (kernel(context, "layer_50us")?, kernel(context, "piece_10us")?);
        let names = || emulator.kernels().into_iter().map(|kernel| kernel.name).collect::<Vec<_>>();

        // Open from the beginning.
        gate.wait(&background)?;
        launch(&piece, &background)?;
        background.synchronize()?;
        assert_eq!(names(), ["piece_10us"]);

        gate.shut(&foreground)?;
        foreground.synchronize()?;
        gate.wait(&background)?;
        launch(&piece, &background)?;
        emulator.advance(Duration::from_millis(1));
        assert!(!background.is_idle()? && names().len() == 1);

        // It is opened in stream order.
        launch(&layer, &foreground)?;
        gate.open(&foreground)?;
        background.synchronize()?;
        assert_eq!(names(), ["piece_10us", "layer_50us", "piece_10us"]);
        Ok(())
    });
}

#[test]
fn a_gate_is_opened_by_force() {
    on_emulated_device(|_, context| {
        let [foreground, background] =
            [Stream::new(context, Priority::Foreground)?, Stream::new(context, Priority::Background)?];
        let gate = Gate::new(context, &foreground)?;
        gate.shut(&foreground)?;
        gate.wait(&background)?;
        gate.force_open(&foreground)?;
        background.synchronize()
    });
}
