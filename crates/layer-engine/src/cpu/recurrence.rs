//! Recurrences of LSTMs and GRUs. A *step* computes a position of a sequence.

use std::ops::Range;

use layer_graph::{Layer, Recurrence, RecurrenceSizes, RecurrentCell};

use super::Real;
use super::activation::logistic;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation, SavingPass};
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};

/// Number of samples that one thread computes together. It does not depend on the number of
/// threads, so that results do not.
const SAMPLES: usize = 16;

/// Number of rows of the weight's gradient that one thread computes together.
const ROWS: usize = 64;

/// Pass of a recurrence.
///
/// Saves, for each position of each sample, the gates and one more vector: the memory of an LSTM,
/// or the recurrent products of a GRU's last gate.
#[derive(Debug)]
pub(super) struct RecurrentLayer<T> {
    rule: Rule,
    pass: SavingPass,
    workers: Workers,
    /// Workspace of `scratch_elements` for each sample. In evaluation, the gates and the memory of
    /// one step. Backward, for each [`SAMPLES`] samples, the gradients of a GRU's products of the
    /// last gate, and those of the output and of the memory that a step has from the step after it.
    scratch: Vec<T>,
    /// Number of elements of a sample's workspace.
    scratch_elements: usize,
    /// Gradients of the input, if no operand receives them.
    input_gradient: Vec<T>,
}

/// Sizes and function of a recurrence.
#[derive(Debug, Clone, Copy)]
struct Rule {
    cell: RecurrentCell,
    reversed: bool,
    sizes: RecurrenceSizes,
}

impl Rule {
    /// Returns the number of input elements of a step.
    fn inputs(&self) -> usize {
        self.sizes.gates * self.sizes.width
    }

    /// Returns the number of saved elements of a step.
    fn saved(&self) -> usize {
        self.cell.saved() * self.sizes.width
    }

    /// Returns the place of an element of the vector with this index in the vectors of a step.
    fn place(&self, vector: usize, unit: usize) -> usize {
        vector * self.sizes.width + unit
    }

    /// Returns the position of each step, with that of the step before. The first step has none.
    fn steps(&self) -> impl DoubleEndedIterator<Item = (usize, Option<usize>)> {
        let positions = self.sizes.positions;
        let reversed = self.reversed;
        let position = move |step: usize| if reversed { positions - 1 - step } else { step };
        (0..positions).map(move |step| (position(step), step.checked_sub(1).map(position)))
    }

    /// Returns the weight and the bias, which is empty if there is none.
    fn parameters<'a, T>(&self, parameters: &'a [T]) -> (&'a [T], &'a [T]) {
        parameters.split_at(self.inputs() * self.sizes.width)
    }

    /// Computes the steps of some samples. `kept` has the gates and the memory of `slots` positions
    /// of each sample: of all of them, or of the current one.
    fn forward<T: Real>(
        &self,
        input: &[T],
        parameters: &[T],
        output: &mut [T],
        (kept, slots): (&mut [T], usize),
    ) {
        let RecurrenceSizes { positions, width, .. } = self.sizes;
        let (inputs, saved) = (self.inputs(), self.saved());
        let samples = output.len() / (positions * width);
        let (weight, bias) = self.parameters(parameters);
        // The products of a GRU's last gate are apart from its input.
        let (joined, apart) = match self.cell {
            RecurrentCell::Lstm => (inputs, None),
            RecurrentCell::Gru => (2 * width, Some(3 * width)),
        };
        for (position, before) in self.steps() {
            let slot = position % slots;
            for sample in 0..samples {
                let kept = &mut kept[(sample * slots + slot) * saved..][..saved];
                let x = &input[(sample * positions + position) * inputs..][..inputs];
                // The memory is the last vector.
                kept[..joined].copy_from_slice(&x[..joined]);
                kept[..joined].iter_mut().zip(bias).for_each(|(sum, &bias)| *sum += bias);
                if let Some(apart) = apart {
                    kept[apart..].fill(T::zero());
                    let bias = bias.iter().skip(joined);
                    kept[apart..].iter_mut().zip(bias).for_each(|(sum, &bias)| *sum = bias);
                }
            }
            if let Some(before) = before {
                let left = &output[before * width..];
                let left = Matrix::with_stride(left, samples, width, positions * width);
                let mut add = |place: usize, rows: Range<usize>| {
                    let target = &mut kept[slot * saved + place..];
                    let target = MatrixMut::with_stride(target, samples, rows.len(), slots * saved);
                    let right = &weight[rows.start * width..rows.end * width];
                    let right = Matrix::new(right, rows.len(), width).transposed();
                    multiply(target, Update::Accumulate, left, right);
                };
                add(0, 0..joined);
                if let Some(apart) = apart {
                    add(apart, joined..inputs);
                }
            }
            for sample in 0..samples {
                let kept = &mut kept[sample * slots * saved..][..slots * saved];
                let x = &input[(sample * positions + position) * inputs..][..inputs];
                let output = &mut output[sample * positions * width..][..positions * width];
                match self.cell {
                    RecurrentCell::Lstm => {
                        let y = &mut output[position * width..][..width];
                        self.lstm(kept, slot, before.map(|before| before % slots), y);
                    }
                    RecurrentCell::Gru => {
                        let kept = &mut kept[slot * saved..][..saved];
                        self.gru(kept, &x[2 * width..], output, position, before);
                    }
                }
            }
        }
    }

    /// Computes the output of an LSTM's step from the sums of its gates. `kept` has the slots of
    /// one sample: that of the step, and that of the step before.
    fn lstm<T: Real>(&self, kept: &mut [T], slot: usize, before: Option<usize>, y: &mut [T]) {
        let saved = self.saved();
        for (unit, y) in y.iter_mut().enumerate() {
            let memory = before.map_or(T::zero(), |before| kept[before * saved + self.place(4, unit)]);
            let kept = &mut kept[slot * saved..][..saved];
            let gate = |index: usize| kept[self.place(index, unit)];
            let [i, f, o] = [gate(0), gate(1), gate(3)].map(logistic);
            let g = gate(2).hyperbolic_tangent();
            let c = f * memory + i * g;
            for (index, value) in [i, f, g, o, c].into_iter().enumerate() {
                kept[self.place(index, unit)] = value;
            }
            *y = o * c.hyperbolic_tangent();
        }
    }

    /// Computes the output of a GRU's step, at `position`, from the sums of its gates. `x` is the
    /// last gate's input; `output` has the outputs of one sample, `before` is the position of the
    /// step before.
    fn gru<T: Real>(
        &self,
        kept: &mut [T],
        x: &[T],
        output: &mut [T],
        position: usize,
        before: Option<usize>,
    ) {
        let width = self.sizes.width;
        for unit in 0..width {
            let state = before.map_or(T::zero(), |before| output[before * width + unit]);
            let [r, z] = [0, 1].map(|index| logistic(kept[self.place(index, unit)]));
            let n = (x[unit] + r * kept[self.place(3, unit)]).hyperbolic_tangent();
            for (index, value) in [r, z, n].into_iter().enumerate() {
                kept[self.place(index, unit)] = value;
            }
            output[position * width + unit] = (T::one() - z) * n + z * state;
        }
    }

    /// Computes the input gradients of some samples, from the last step to the first one. The
    /// start of the workspace receives the gradients of a GRU's products of the last gate.
    fn input_gradient<T: Real>(
        &self,
        [parameters, output, saved, output_gradient]: [&[T]; 4],
        input_gradient: &mut [T],
        scratch: &mut [T],
    ) {
        let RecurrenceSizes { positions, width, .. } = self.sizes;
        let (inputs, saved_elements) = (self.inputs(), self.saved());
        let samples = input_gradient.len() / (positions * inputs);
        let (apart, carried) = scratch.split_at_mut(scratch.len() - samples * 2 * width);
        let (weight, _) = self.parameters(parameters);
        carried.fill(T::zero());
        for (position, before) in self.steps().rev() {
            for sample in 0..samples {
                let row = sample * positions + position;
                let (carried, memory) = carried[sample * 2 * width..][..2 * width].split_at_mut(width);
                let kept = &saved[row * saved_elements..][..saved_elements];
                let dy = &output_gradient[row * width..][..width];
                let dx = &mut input_gradient[row * inputs..][..inputs];
                let before = before.map(|before| sample * positions + before);
                match self.cell {
                    RecurrentCell::Lstm => {
                        let memory_before = before.map(|row| &saved[row * saved_elements + 4 * width..]);
                        self.lstm_gradient(kept, memory_before, dy, dx, [&mut *carried, memory]);
                    }
                    RecurrentCell::Gru => {
                        let state = before.map(|row| &output[row * width..]);
                        let apart = &mut apart[row * width..][..width];
                        self.gru_gradient(kept, state, dy, dx, [&mut *carried, apart]);
                    }
                }
            }
            // Nothing is before the first step.
            if before.is_none() {
                break;
            }
            let mut add = |gradients: &[T], row_elements: usize, rows: Range<usize>| {
                let left = Matrix::with_stride(gradients, samples, rows.len(), positions * row_elements);
                let right = Matrix::new(&weight[rows.start * width..rows.end * width], rows.len(), width);
                let target = MatrixMut::with_stride(&mut *carried, samples, width, 2 * width);
                multiply(target, Update::Accumulate, left, right);
            };
            match self.cell {
                RecurrentCell::Lstm => add(&input_gradient[position * inputs..], inputs, 0..inputs),
                RecurrentCell::Gru => {
                    add(&input_gradient[position * inputs..], inputs, 0..2 * width);
                    add(&apart[position * width..], width, 2 * width..inputs);
                }
            }
        }
    }

    /// Computes the input gradient of an LSTM's step. `carried` and `memory` are the gradients of
    /// the output and of the memory from the following step; they are replaced by those for the
    /// previous step, without the products.
    fn lstm_gradient<T: Real>(
        &self,
        kept: &[T],
        memory_before: Option<&[T]>,
        dy: &[T],
        dx: &mut [T],
        [carried, memory]: [&mut [T]; 2],
    ) {
        let one = T::one();
        for unit in 0..self.sizes.width {
            let [i, f, g, o, c] = [0, 1, 2, 3, 4].map(|index| kept[self.place(index, unit)]);
            let before = memory_before.map_or(T::zero(), |memory| memory[unit]);
            let dh = dy[unit] + carried[unit];
            let tanh = c.hyperbolic_tangent();
            let dc = dh * o * (one - tanh * tanh) + memory[unit];
            let gradients = [
                dc * g * i * (one - i),
                dc * before * f * (one - f),
                dc * i * (one - g * g),
                dh * tanh * o * (one - o),
            ];
            for (index, gradient) in gradients.into_iter().enumerate() {
                dx[self.place(index, unit)] = gradient;
            }
            carried[unit] = T::zero();
            memory[unit] = dc * f;
        }
    }

    /// Computes the input gradient of a GRU's step, as [`lstm_gradient`](Self::lstm_gradient) does,
    /// and the gradient of the products of its last gate, `apart`.
    fn gru_gradient<T: Real>(
        &self,
        kept: &[T],
        state: Option<&[T]>,
        dy: &[T],
        dx: &mut [T],
        [carried, apart]: [&mut [T]; 2],
    ) {
        let one = T::one();
        for unit in 0..self.sizes.width {
            let [r, z, n, products] = [0, 1, 2, 3].map(|index| kept[self.place(index, unit)]);
            let state = state.map_or(T::zero(), |state| state[unit]);
            let dh = dy[unit] + carried[unit];
            let dn = dh * (one - z) * (one - n * n);
            let gradients = [dn * products * r * (one - r), dh * (state - n) * z * (one - z), dn];
            for (index, gradient) in gradients.into_iter().enumerate() {
                dx[self.place(index, unit)] = gradient;
            }
            apart[unit] = dn * r;
            carried[unit] = dh * z;
        }
    }
}

impl<T: Real> RecurrentLayer<T> {
    /// Creates a pass of a layer over `samples` samples. Returns `None` if its input does not fit.
    pub(super) fn new(
        layer: &Layer,
        recurrence: &Recurrence,
        samples: usize,
        pass: Pass,
        workers: &Workers,
    ) -> Option<Self> {
        let sizes = recurrence.sizes(layer.input_shapes().first()?)?;
        let rule = Rule { cell: recurrence.cell, reversed: recurrence.reversed, sizes };
        let RecurrenceSizes { positions, width, .. } = rule.sizes;
        let pass = SavingPass::of(pass);
        let scratch_elements = match (pass, rule.cell) {
            (SavingPass::Forward, _) => 0,
            (SavingPass::Infer, _) => rule.saved(),
            (_, RecurrentCell::Lstm) => 2 * width,
            (_, RecurrentCell::Gru) => (positions + 2) * width,
        };
        let inputs = if pass == SavingPass::BackwardParameters { positions * rule.inputs() } else { 0 };
        let zeros = |elements: usize| vec![T::zero(); samples * elements];
        let (scratch, input_gradient) = (zeros(scratch_elements), zeros(inputs));
        Some(Self { rule, pass, workers: workers.clone(), scratch, scratch_elements, input_gradient })
    }

    /// Computes the outputs. `kept` receives the gates and the memory of `slots` positions of each
    /// sample.
    fn forward(
        rule: Rule,
        workers: &Workers,
        [input, parameters]: [&[T]; 2],
        output: &mut [T],
        (kept, slots): (&mut [T], usize),
    ) {
        let [inputs, outputs] = [rule.inputs(), rule.sizes.width].map(|size| size * rule.sizes.positions);
        let kept = (kept, SAMPLES * slots * rule.saved());
        workers.chunk_pairs((output, SAMPLES * outputs), kept, |index, output, kept| {
            rule.forward(&input[index * SAMPLES * inputs..], parameters, output, (kept, slots));
        });
    }

    fn backward(&mut self, reads: [&[T]; 4], [input_gradient, gradient]: [&mut [T]; 2]) {
        let rule = self.rule;
        let [parameters, output, saved, output_gradient] = reads;
        let of_chunk = |elements: usize| SAMPLES * rule.sizes.positions * elements;
        let chunks = (&mut *input_gradient, of_chunk(rule.inputs()));
        let scratch = (&mut self.scratch[..], SAMPLES * self.scratch_elements);
        self.workers.chunk_pairs(chunks, scratch, |index, input_gradient, scratch| {
            let from = |buffer: &'_ [T], elements: usize| index * of_chunk(elements)..buffer.len();
            let width = rule.sizes.width;
            let output = &output[from(output, width)];
            let saved = &saved[from(saved, rule.saved())];
            let output_gradient = &output_gradient[from(output_gradient, width)];
            rule.input_gradient([parameters, output, saved, output_gradient], input_gradient, scratch);
        });
        self.parameter_gradient(output, input_gradient, gradient);
    }

    /// Returns the gradients of the products for a row of the weight, for all positions of a
    /// sample: the elements from that of the first position on, and their distance.
    fn product_gradients<'a>(
        &'a self,
        input_gradient: &'a [T],
        sample: usize,
        row: usize,
    ) -> (&'a [T], usize) {
        let RecurrenceSizes { positions, width, .. } = self.rule.sizes;
        if self.rule.cell == RecurrentCell::Gru && row >= 2 * width {
            let chunk = sample / SAMPLES * SAMPLES * self.scratch_elements;
            let start = chunk + sample % SAMPLES * positions * width;
            (&self.scratch[start + row - 2 * width..], width)
        } else {
            let inputs = self.rule.inputs();
            (&input_gradient[sample * positions * inputs + row..], inputs)
        }
    }

    /// Computes the gradients of the weight and of the bias from the gradients of the input.
    fn parameter_gradient(&self, output: &[T], input_gradient: &[T], gradient: &mut [T]) {
        let RecurrenceSizes { positions, width, .. } = self.rule.sizes;
        let samples = output.len() / (positions * width);
        let (weight, bias) = gradient.split_at_mut(self.rule.inputs() * width);
        for (row, sum) in bias.iter_mut().enumerate() {
            let of_sample = |sample: usize| {
                let (gradients, distance) = self.product_gradients(input_gradient, sample, row);
                gradients
                    .iter()
                    .step_by(distance)
                    .take(positions)
                    .map(|gradient| gradient.widen())
                    .sum::<f64>()
            };
            *sum = T::narrow((0..samples).map(of_sample).sum());
        }
        // The first step multiplies nothing.
        let (first, before) = if self.rule.reversed { (0, 1) } else { (1, 0) };
        // All of them belong to one gate.
        let rows = (1..=width.min(ROWS)).rev().find(|rows| width % rows == 0).unwrap_or(1);
        self.workers.chunks(weight, rows * width, |index, weight| {
            weight.fill(T::zero());
            for sample in 0..samples {
                let (gradients, distance) = self.product_gradients(input_gradient, sample, index * rows);
                if positions == 1 {
                    continue;
                }
                let left = &gradients[first * distance..];
                let left = Matrix::with_stride(left, positions - 1, rows, distance).transposed();
                let right =
                    Matrix::new(&output[(sample * positions + before) * width..], positions - 1, width);
                multiply(MatrixMut::new(&mut *weight, rows, width), Update::Accumulate, left, right);
            }
        });
    }
}

impl<T: Real> Operation<T> for RecurrentLayer<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            SavingPass::Forward => {
                let (reads, [output, saved]) = operands.into_arrays()?;
                let positions = self.rule.sizes.positions;
                Self::forward(self.rule, &self.workers, reads, output, (saved, positions));
            }
            SavingPass::Infer => {
                let (reads, [output]) = operands.into_arrays()?;
                Self::forward(self.rule, &self.workers, reads, output, (&mut self.scratch, 1));
            }
            SavingPass::Backward => {
                let (reads, writes) = operands.into_arrays()?;
                self.backward(reads, writes);
            }
            SavingPass::BackwardParameters => {
                let (reads, [gradient]) = operands.into_arrays()?;
                let mut input_gradient = std::mem::take(&mut self.input_gradient);
                self.backward(reads, [&mut input_gradient, gradient]);
                self.input_gradient = input_gradient;
            }
        }
        Ok(())
    }
}
