//! Wrong uses that would access memory of another device or freed memory are errors, or are safe.

use std::thread;

use cuda::{Buffer, Error, Gate, Priority, Result, Stream};
use cuda_emulator::{Emulator, Setting};

use super::{driver, on_emulated_device};

#[test]
fn buffer_in_a_stream_of_another_device_is_an_error() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Devices, 2);
    let contexts = [0, 1].map(|ordinal| driver().unwrap().context(ordinal).unwrap());
    let streams = [0, 1].map(|device| Stream::new(&contexts[device], Priority::Background).unwrap());
    let buffers = [0, 1].map(|device| Buffer::<f32>::zeros(&contexts[device], 4).unwrap());
    for error in [
        buffers[0].fill_bytes(&streams[1], 1).unwrap_err(),
        buffers[1].to_vec(&streams[0]).unwrap_err(),
        buffers[0].enqueue_copy(&streams[0], 0, &buffers[1], 0..4).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(message.starts_with("a buffer of device "), "{message}");
    }
    assert_ne!(streams[0], streams[1]);
    assert_eq!(buffers[0].to_vec(&streams[0]).unwrap(), [0.0; 4]);
}

#[test]
fn work_of_another_thread_in_a_captured_stream_is_an_error() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let buffer = Buffer::<f32>::zeros(context, 4)?;
        let graph = stream.capture(|stream| -> Result<()> {
            let other = thread::scope(|scope| {
                let fill = || buffer.fill_bytes(stream, 1);
                scope.spawn(fill).join().unwrap()
            });
            assert!(matches!(&other, Err(Error::Invalid(_))), "{other:?}");
            buffer.fill_bytes(stream, 2)
        })?;
        assert_eq!(graph.node_count()?, 1);
        graph.instantiate()?.launch(&stream)?;
        let twos = f32::from_le_bytes([2; 4]);
        assert_eq!(buffer.to_vec(&stream)?, [twos; 4]);
        Ok(())
    });
}

#[test]
fn graph_keeps_a_gate_and_a_buffer() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let gate = Gate::new(context, &stream)?;
        let buffer = Buffer::<f32>::zeros(context, 4)?;
        let waits = stream.capture(|stream| gate.wait(stream).and_then(|()| buffer.fill_bytes(stream, 0)))?;
        let executable = waits.instantiate()?;
        drop((gate, buffer, waits));
        executable.launch(&stream)?;
        stream.synchronize()
    });
}

#[test]
fn memory_of_a_stream_that_another_stream_uses_is_freed_after_both() {
    on_emulated_device(|_, context| {
        let [own, other] = [(); 2].map(|()| Stream::new(context, Priority::Background));
        let (own, other) = (own?, other?);
        let buffer = Buffer::<f32>::in_stream(&own, 1 << 20)?;
        other.wait_for_stream(&own)?;
        buffer.fill_bytes(&other, 0)?;
        drop(buffer);
        assert!(other.is_idle()?);
        Ok(())
    });
}
