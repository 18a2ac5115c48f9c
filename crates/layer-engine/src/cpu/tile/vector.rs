//! The kernel of a tile, written once for all vector instructions.

/// A module's kernels for right panels of one, two and three vectors.
macro_rules! panel_kernels {
    (
        $table:ident, $kernel:ident, $feature:literal, $scalar:ty, $rows:ident,
        $lanes:literal, $zero:ident, $load:ident, $store:ident, $splat:ident, $multiply_add:ident
    ) => {
        pub(super) const $table: &[Kernel<$scalar>] = &[$kernel::<1>, $kernel::<2>, $kernel::<3>];

        #[target_feature(enable = $feature)]
        unsafe fn $kernel<const VECTORS: usize>(panels: &Panels<$scalar>) {
            let &Panels { depth, mut left, mut right, target, stride, start } = panels;
            // SAFETY: the caller's promises, which are those of `Kernel`, keep every address within its slice.
            unsafe {
                let mut sums = [[$zero(); VECTORS]; $rows];
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        *sum = if start.is_null() {
                            $load(target.add(row * stride + vector * $lanes))
                        } else {
                            $splat(*start.add(row))
                        };
                    }
                }
                for _ in 0..depth {
                    let mut columns = [$zero(); VECTORS];
                    for (vector, columns) in columns.iter_mut().enumerate() {
                        *columns = $load(right.add(vector * $lanes));
                    }
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let factor = $splat(*left.add(row));
                        for (sum, &columns) in sums.iter_mut().zip(&columns) {
                            *sum = $multiply_add(factor, columns, *sum);
                        }
                    }
                    left = left.add($rows);
                    right = right.add(VECTORS * $lanes);
                }
                for (row, sums) in sums.iter().enumerate() {
                    for (vector, &sum) in sums.iter().enumerate() {
                        $store(target.add(row * stride + vector * $lanes), sum);
                    }
                }
            }
        }
    };
}
