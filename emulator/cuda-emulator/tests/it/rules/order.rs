//! Property test: graphs run each kernel once, after its dependencies.

use super::cuda::{Cuda, zeros};
use cudarc::driver::sys::CUDA_KERNEL_NODE_PARAMS;
use proptest::prelude::*;

/// A graph as its number of nodes and its edges from dependencies to dependents.
#[derive(Debug, Clone)]
struct Shape {
    nodes: usize,
    edges: Vec<(usize, usize)>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1_usize..9).prop_flat_map(|nodes| {
        let ranks = Just((0..nodes).collect::<Vec<_>>()).prop_shuffle();
        let pairs = prop::collection::btree_set((0..nodes, 0..nodes), 0..2 * nodes);
        (ranks, pairs).prop_map(move |(ranks, pairs)| {
            let edges = pairs.into_iter().filter(|&(from, to)| ranks[from] < ranks[to]).collect();
            Shape { nodes, edges }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn kernels_run_after_their_dependencies(shape in shapes(), nested in any::<bool>()) {
        let cuda = Cuda::start();
        let names: Vec<_> = (0..shape.nodes).map(|node| format!("node_{node}_1us")).collect();
        let kernel = |ptx: String, name: &String| ptx + ".entry " + name + "() { ret; }\n";
        let ptx: String = names.iter().fold(String::new(), kernel);
        let image = std::ffi::CString::new(ptx).unwrap();
        let module = cuda.make(|place| cuda.cuModuleLoadData(place, image.as_ptr()));
        let graph = cuda.graph();
        let nodes: Vec<_> = names.iter().map(|name| {
            let mut parameters: CUDA_KERNEL_NODE_PARAMS = zeros();
            parameters.func = cuda.kernel(module, name) as *mut _;
            [parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ] = [1; 3];
            [parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ] = [1; 3];
            let none = std::ptr::null();
            cuda.make(|place| cuda.cuGraphAddKernelNode_v2(place, graph, none, 0, &raw const parameters))
        }).collect();
        for &(from, to) in &shape.edges {
            cuda.ok(cuda.cuGraphAddDependencies(graph, &raw const nodes[from], &raw const nodes[to], 1));
        }
        let outer = cuda.graph();
        if nested {
            cuda.make(|place| cuda.cuGraphAddChildGraphNode(place, outer, std::ptr::null(), 0, graph));
        }
        let exec = cuda.instantiated(if nested { outer } else { graph });
        let stream = cuda.stream(0);
        cuda.ok(cuda.cuGraphUpload(exec, stream));
        cuda.ok(cuda.cuGraphLaunch(exec, stream));
        cuda.ok(cuda.cuStreamSynchronize(stream));

        let ran = cuda.timeline();
        let place = |node: usize| ran.iter().position(|(_, _, name)| *name == names[node]);
        prop_assert_eq!(ran.len(), shape.nodes);
        prop_assert_eq!(cuda.emulator.now().as_micros() as usize, shape.nodes);
        for &(from, to) in &shape.edges {
            prop_assert!(place(from).unwrap() < place(to).unwrap(), "{} before {}: {:?}", from, to, ran);
        }
    }
}
