//! Report of objects that the caller has not destroyed.

use super::Driver;
use crate::state::report::lines;

impl Driver {
    /// Returns one line for each object that the caller has not destroyed.
    pub(crate) fn leaks(&self) -> String {
        let mut leaks = Vec::new();
        let mut name = |handle: &usize| leaks.push(self.handles.name(*handle));
        self.user_streams().for_each(|handle| name(&handle));
        self.events.keys().for_each(&mut name);
        self.graphs.iter().filter(|(_, graph)| graph.is_user_owned()).for_each(|(handle, _)| name(handle));
        self.execs.keys().for_each(&mut name);
        self.modules.handles().for_each(|handle| name(&handle));
        self.green.handles().for_each(|handle| name(&handle));
        self.cublaslt.objects().for_each(|handle| name(&handle));
        self.contexts.created().for_each(|handle| name(&handle));
        for (handle, stream) in &self.streams {
            if stream.destroyed {
                leaks.push(format!("{}: destroyed with work that has not ended", self.handles.name(*handle)));
            }
        }
        leaks.extend(
            self.captures.origins().map(|origin| format!("capture on {}", self.handles.name(origin))),
        );
        leaks.extend(self.memory.leaks());
        leaks.extend(self.nccl.leaks());
        leaks.extend(self.cudnn_leaks());
        leaks.extend(self.contexts.retained().map(|(device, times)| {
            format!("primary context of device {device}: retained {times} times more than released")
        }));
        lines(&leaks)
    }
}
