//! Copies of rows beside copies of single elements on the host.

use cuda::{Buffer, Priority, RowCopy, Rows, Stream};

use super::on_emulated_device;

/// Copies between buffers of 60 elements.
fn copies() -> Vec<RowCopy> {
    let copy = |counts, len, from, to| {
        let [from, to] = [from, to].map(|(first, distances)| Rows { first, distances });
        RowCopy { counts, len, from, to }
    };
    vec![
        copy([2, 3], 2, (1, [20, 5]), (0, [6, 2])),
        copy([2, 3], 4, (0, [12, 4]), (7, [24, 8])),
        copy([1, 4], 3, (2, [0, 11]), (30, [0, 3])),
        copy([4, 1], 3, (2, [11, 0]), (30, [3, 0])),
        copy([1, 1], 5, (3, [0, 0]), (55, [0, 0])),
        copy([0, 3], 2, (100, [9, 9]), (100, [9, 9])),
    ]
}

#[test]
fn rows_are_copied_at_once_and_in_graphs() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let numbers: Vec<u32> = (100..160).collect();
        for copy in copies() {
            let mut expected = vec![0; 60];
            for (slice, row) in
                (0..copy.counts[0]).flat_map(|slice| (0..copy.counts[1]).map(move |row| (slice, row)))
            {
                for element in 0..copy.len {
                    let place = |rows: Rows| {
                        rows.first + slice * rows.distances[0] + row * rows.distances[1] + element
                    };
                    expected[place(copy.to)] = numbers[place(copy.from)];
                }
            }
            let (from, to) = (Buffer::from_slice(context, &numbers)?, Buffer::zeros(context, 60)?);
            to.enqueue_copy_rows(&stream, &from, &copy)?;
            assert_eq!(to.to_vec(&stream)?, expected, "{copy:?}");
            to.fill_bytes(&stream, 0)?;
            stream.synchronize()?;
            let graph = stream.capture(|stream| to.enqueue_copy_rows(stream, &from, &copy))?.instantiate()?;
            graph.launch(&stream)?;
            assert_eq!(to.to_vec(&stream)?, expected, "{copy:?} in a graph");
        }
        Ok(())
    });
}

#[test]
fn rows_outside_of_a_buffer_are_errors() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let [from, to] = [Buffer::<f32>::zeros(context, 60)?, Buffer::zeros(context, 60)?];
        let good = copies()[0];
        let wrong = [
            RowCopy { from: Rows { first: 29, ..good.from }, ..good },
            RowCopy { to: Rows { first: 49, ..good.to }, ..good },
            // Rows that overlap, slices within slices, and a distance that CUDA cannot express.
            RowCopy { to: Rows { distances: [6, 1], ..good.to }, ..good },
            RowCopy { to: Rows { distances: [4, 2], ..good.to }, ..good },
            RowCopy { to: Rows { distances: [7, 2], ..good.to }, ..good },
            RowCopy { counts: [usize::MAX, 3], ..good },
            RowCopy { counts: [3, 1], len: 5, from: Rows { first: 0, distances: [2, 1] }, ..good },
        ];
        for copy in wrong {
            let error = to.enqueue_copy_rows(&stream, &from, &copy).unwrap_err().to_string();
            assert!(error.contains("exceeds buffers of [60, 60] elements"), "{error}");
        }
        Ok(())
    });
}
