use std::sync::Arc;

use super::context::Context;
use super::green::Green;
use crate::cuda::error::Result;

/// Where a stream and its events live: in the device's primary context or in a part of it.
#[derive(Debug, Clone)]
pub(in crate::cuda) enum Place {
    Whole(Context),
    Part(Arc<Green>),
}

impl Place {
    pub(in crate::cuda) fn context(&self) -> &Context {
        match self {
            Self::Whole(context) => context,
            Self::Part(green) => green.context(),
        }
    }

    /// Makes it this thread's current context.
    pub(super) fn bind(&self) -> Result<()> {
        match self {
            Self::Whole(context) => context.bind(),
            Self::Part(green) => green.bind(),
        }
    }

    /// Destroys something that lives here; an error is kept for later.
    pub(super) fn destroy(&self, destroy: impl FnOnce() -> Result<()>) {
        // Also when the context could not be made current: most objects know their own.
        let bound = self.bind();
        let destroyed = destroy();
        self.context().keep(bound.and(destroyed));
    }
}
