//! Linear and second-order cone programs in the solver's form. A *demand* is a group of identical
//! jobs. A *share* is the fraction of time in which each job of a demand runs on GPUs of a type.
//! Variables are given by their indices: first the shares, at `demand * types + type` for `types`
//! types of GPUs, then further variables.

use clarabel::algebra::CscMatrix;
use clarabel::solver::{
    DefaultSettingsBuilder, DefaultSolver, IPSolver, SolverStatus,
    SupportedConeT::{self, NonnegativeConeT, SecondOrderConeT},
};

use super::Demand;
use crate::Error;

/// Cone program: a linear objective that is minimized under two kinds of constraints. An inequality
/// is a row `sum of coefficient * variable <= bound`. A second-order cone consists of three rows,
/// whose differences `bound - sum` form a vector of the cone.
pub(super) struct ConeProgram {
    objective: Vec<f64>,
    rows: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
    bounds: Vec<f64>,
    /// Number of rows that are inequalities; the others are cones of three rows each.
    inequalities: usize,
}

impl ConeProgram {
    /// Creates a program over the share of each demand on each type and `more` further variables,
    /// with a zero objective. `gpus` is the number of GPUs of each type.
    ///
    /// It has these inequalities: each share is at least 0; the shares of a demand sum to at most
    /// 1; the shares of a type, each multiplied by the number of GPUs of all jobs of the demand,
    /// sum to at most the number of GPUs of the type.
    pub(super) fn of_shares(demands: &[Demand], gpus: &[usize], more: usize) -> Self {
        let types = gpus.len();
        let mut program = Self {
            objective: vec![0.0; demands.len() * types + more],
            rows: Vec::new(),
            columns: Vec::new(),
            values: Vec::new(),
            bounds: Vec::new(),
            inequalities: 0,
        };
        for share in 0..demands.len() * types {
            program.at_most(&[(share, -1.0)], 0.0);
        }
        for job in 0..demands.len() {
            let shares: Vec<_> = (0..types).map(|of_type| (job * types + of_type, 1.0)).collect();
            program.at_most(&shares, 1.0);
        }
        for (of_type, &gpus) in gpus.iter().enumerate() {
            let share =
                |(job, demand): (usize, &Demand)| (job * types + of_type, (demand.jobs * demand.gpus) as f64);
            let shares: Vec<_> = demands.iter().enumerate().map(share).collect();
            program.at_most(&shares, gpus as f64);
        }
        program
    }

    /// Sets the coefficient of a variable in the objective, which is minimized.
    pub(super) fn minimize(&mut self, variable: usize, coefficient: f64) {
        self.objective[variable] = coefficient;
    }

    /// Adds the inequality that the sum of `terms` is at most `bound`. A term is the index of a
    /// variable and its coefficient. All inequalities must be added before the first cone.
    pub(super) fn at_most(&mut self, terms: &[(usize, f64)], bound: f64) {
        self.row(terms, bound);
        self.inequalities += 1;
    }

    /// Constrains the product of a variable v and the sum s of terms to at least 1: the cone (v +
    /// s, v - s, 2).
    pub(super) fn product_at_least_one(&mut self, variable: usize, terms: &[(usize, f64)]) {
        for sign in [1.0, -1.0] {
            let mut row: Vec<_> = terms.iter().map(|&(column, value)| (column, -sign * value)).collect();
            row.push((variable, -1.0));
            self.row(&row, 0.0);
        }
        self.row(&[], 2.0);
    }

    fn row(&mut self, terms: &[(usize, f64)], bound: f64) {
        let row = self.bounds.len();
        for &(column, value) in terms {
            self.rows.push(row);
            self.columns.push(column);
            self.values.push(value);
        }
        self.bounds.push(bound);
    }

    /// Solves the program and returns the share of each demand on each type, clamped to 0..=1.
    /// `demands` and the number of `types` are those given to `of_shares`.
    ///
    /// # Errors
    /// [`Error::Unsolved`] if the solver refuses the program or finds no solution.
    pub(super) fn solve(self, demands: &[Demand], types: usize) -> Result<Vec<Vec<f64>>, Error> {
        let variables = self.objective.len();
        let unsolved =
            |status: String| Error::Unsolved { jobs: demands.iter().map(|demand| demand.jobs).sum(), status };
        let rows = self.bounds.len();
        let matrix = CscMatrix::new_from_triplets(rows, variables, self.rows, self.columns, self.values);
        let mut cones: Vec<SupportedConeT<f64>> = vec![NonnegativeConeT(self.inequalities)];
        cones.extend(std::iter::repeat_n(SecondOrderConeT(3), (rows - self.inequalities) / 3));
        let settings = DefaultSettingsBuilder::default()
            .verbose(false)
            .build()
            .map_err(|error| unsolved(error.to_string()))?;
        let nothing = CscMatrix::zeros((variables, variables));
        let mut solver =
            DefaultSolver::new(&nothing, &self.objective, &matrix, &self.bounds, &cones, settings)
                .map_err(|error| unsolved(error.to_string()))?;
        solver.solve();
        match solver.solution.status {
            SolverStatus::Solved | SolverStatus::AlmostSolved => {}
            status => return Err(unsolved(format!("{status:?}"))),
        }
        let shares = solver.solution.x[..demands.len() * types].chunks(types);
        Ok(shares.map(|of_job| of_job.iter().map(|share| share.clamp(0.0, 1.0)).collect()).collect())
    }
}
