//! Stream captures, which turn work into nodes of a graph. Captures are numbered. A stream belongs
//! to a capture if the capture began in it or if it waited for an event of the capture.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    capture::{Capture, CapturedRecord, Membership, RELAXED},
    graphs::{Graph, Node},
    nodes::NodeWork,
    work::StreamWork,
};
use std::{collections::HashSet, thread};

impl Driver {
    /// Returns the capture that a stream belongs to, with the stream's last nodes, or `None` if it
    /// is not capturing.
    pub(super) fn membership(&self, stream: Handle) -> Option<&Membership> {
        self.streams.get(&stream)?.capture.as_ref()
    }

    /// Implements `cuStreamBeginCapture`. The default stream cannot capture.
    pub(crate) fn begin_capture(&mut self, handle: Handle, mode: u32) -> CallResult<()> {
        let stream = self.stream(handle)?;
        if stream != handle {
            return Err(CallError::misuse(Code::CAPTURE_UNSUPPORTED, "a default stream cannot capture"));
        }
        if mode > RELAXED {
            return Err(CallError::value(format!("there is no capture mode {mode}")));
        }
        if self.membership(stream).is_some() {
            let text = format!("{} is already capturing", self.handles.name(stream));
            return Err(CallError::misuse(Code::ILLEGAL_STATE, text));
        }
        let graph = self.insert_graph(Graph::capturing());
        self.captures.begun += 1;
        let id = self.captures.begun;
        let thread = thread::current().id();
        self.captures.alive.insert(id, Capture { origin: stream, graph, mode, thread, invalid: false });
        self.join(stream, Membership { capture: id, last_nodes: Vec::new() });
        Ok(())
    }

    fn join(&mut self, stream: Handle, membership: Membership) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.capture = Some(membership);
        }
    }

    /// Implements `cuStreamEndCapture`: returns the captured graph. A call in another stream than
    /// that in which the capture began, or in a thread that its mode forbids, invalidates the
    /// capture. All other calls end it, whatever they return.
    pub(crate) fn end_capture(&mut self, stream: Handle) -> CallResult<Handle> {
        let stream = self.stream(stream)?;
        let name = self.handles.name(stream);
        let Some(id) = self.membership(stream).map(|membership| membership.capture) else {
            return Err(CallError::misuse(Code::ILLEGAL_STATE, format!("{name} is not capturing")));
        };
        let Some(capture) = self.captures.alive.get_mut(&id) else {
            return Err(CallError::plain(Code::CAPTURE_INVALIDATED));
        };
        if capture.origin != stream {
            capture.invalid = true;
            let text =
                format!("the capture that {name} joined began in {}", self.handles.name(capture.origin));
            return Err(CallError::misuse(Code::CAPTURE_UNMATCHED, text));
        }
        if capture.mode != RELAXED && capture.thread != thread::current().id() {
            capture.invalid = true;
            let text = format!("the capture of {name} began on another thread");
            return Err(CallError::misuse(Code::CAPTURE_WRONG_THREAD, text));
        }
        let (graph, invalid) = (capture.graph, capture.invalid);
        let joined = self.is_joined(stream, id);
        self.end_memberships(id);
        if invalid || !joined {
            self.drop_graph(graph);
            return Err(if invalid {
                CallError::plain(Code::CAPTURE_INVALIDATED)
            } else {
                let text = format!("work of other streams in the capture of {name} was not joined to it");
                CallError::misuse(Code::CAPTURE_UNJOINED, text)
            });
        }
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.capturing = false;
        }
        Ok(graph)
    }

    fn end_memberships(&mut self, id: u64) {
        self.captures.alive.remove(&id);
        for stream in self.streams.values_mut() {
            if stream.capture.as_ref().is_some_and(|membership| membership.capture == id) {
                stream.capture = None;
            }
        }
    }

    /// Returns whether all captured nodes precede the end of the origin stream.
    fn is_joined(&self, origin: Handle, id: u64) -> bool {
        let mut reached = HashSet::new();
        let mut open = self.membership(origin).map_or(Vec::new(), |membership| membership.last_nodes.clone());
        while let Some(node) = open.pop() {
            if reached.insert(node) {
                open.extend(self.nodes.get(&node).into_iter().flat_map(|node: &Node| &node.dependencies));
            }
        }
        let members = self.streams.values().filter_map(|stream| stream.capture.as_ref());
        members
            .filter(|member| member.capture == id)
            .flat_map(|member| &member.last_nodes)
            .all(|tip| reached.contains(tip))
    }

    /// Implements `cuStreamIsCapturing`: returns 0 without a capture, 1 in an active and 2 in an
    /// invalid capture.
    pub(crate) fn capture_status(&mut self, stream: Handle) -> CallResult<u32> {
        let stream = self.stream(stream)?;
        Ok(match self.membership(stream) {
            None => 0,
            Some(membership) => 1 + u32::from(self.captures.is_invalid(membership.capture)),
        })
    }

    /// Returns whether a stream is capturing. It is an error if its capture is invalid.
    pub(super) fn is_capturing(&self, stream: Handle) -> CallResult<bool> {
        match self.membership(stream) {
            Some(membership) if self.captures.is_invalid(membership.capture) => {
                Err(CallError::plain(Code::CAPTURE_INVALIDATED))
            }
            membership => Ok(membership.is_some()),
        }
    }

    /// Enqueues work in a stream, or adds it to the graph that the stream captures.
    pub(super) fn submit(&mut self, stream: Handle, mut work: NodeWork) -> CallResult<()> {
        if !self.is_capturing(stream)? {
            let work = match work {
                NodeWork::Collectives(group) => StreamWork::Collectives(self.post_group(stream, &group)),
                work => StreamWork::Single(work),
            };
            self.enqueue(stream, work);
            self.execute_ready_work();
            return Ok(());
        }
        let Some(stream_state) = self.streams.get(&stream) else { return Ok(()) };
        if let NodeWork::Kernel(kernel) = &mut work {
            kernel.priority = stream_state.priority;
        }
        let Some(Membership { capture, last_nodes }) = &stream_state.capture else { return Ok(()) };
        let (capture, last_nodes) = (*capture, last_nodes.clone());
        if let Some(graph) = self.captures.alive.get(&capture).map(|capture| capture.graph) {
            let node = self.append_node(graph, last_nodes, work);
            self.join(stream, Membership { capture, last_nodes: vec![node] });
        }
        Ok(())
    }

    /// Returns the record that an event gets now in a capturing stream, or `None` if the stream is
    /// not capturing. An invalid capture is an error.
    pub(super) fn captured_record(&self, stream: Handle) -> CallResult<Option<CapturedRecord>> {
        self.is_capturing(stream)?;
        Ok(self
            .membership(stream)
            .map(|member| CapturedRecord { capture: member.capture, last_nodes: member.last_nodes.clone() }))
    }

    /// Adds a stream, which waits for an event recorded in a capture, to that capture. `record` is
    /// the record of the event. It is an error if that capture has ended or is invalid, or if the
    /// stream belongs to another one.
    pub(super) fn join_capture(
        &mut self,
        stream: Handle,
        event: Handle,
        record: &CapturedRecord,
    ) -> CallResult<()> {
        let name = self.handles.name(event);
        if !self.captures.alive.contains_key(&record.capture) {
            let own = self.membership(stream).map(|membership| membership.capture);
            if let Some(own) = own {
                self.captures.invalidate(own);
            }
            let text = format!("{name} was last recorded in a capture that has ended");
            return Err(CallError::misuse(Code::CAPTURED_EVENT, text));
        }
        if self.captures.is_invalid(record.capture) {
            return Err(CallError::plain(Code::CAPTURE_INVALIDATED));
        }
        let mut last_nodes = match self.membership(stream) {
            Some(own) if own.capture != record.capture => {
                let own = own.capture;
                self.captures.invalidate(own);
                self.captures.invalidate(record.capture);
                let text = format!(
                    "{name} was recorded in another capture than that of {}",
                    self.handles.name(stream)
                );
                return Err(CallError::misuse(Code::CAPTURE_MERGE, text));
            }
            Some(own) => own.last_nodes.clone(),
            None => Vec::new(),
        };
        last_nodes.extend(&record.last_nodes);
        last_nodes.sort_unstable();
        last_nodes.dedup();
        self.join(stream, Membership { capture: record.capture, last_nodes });
        Ok(())
    }

    /// Invalidates the capture with number `id`, to which a destroyed stream belongs, and ends it
    /// if it began in the stream.
    pub(super) fn abandon_capture(&mut self, stream: Handle, id: u64) {
        self.captures.invalidate(id);
        let lost = self.captures.alive.get(&id).filter(|capture| capture.origin == stream);
        if let Some(graph) = lost.map(|capture| capture.graph) {
            self.end_memberships(id);
            self.drop_graph(graph);
        }
    }
}
