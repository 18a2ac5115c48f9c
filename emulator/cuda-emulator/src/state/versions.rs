//! Driver versions in which functions were added, for the emulation of older drivers.

/// Returns the first driver version that has a function: 1000 x major + 10 x minor. 0 stands for
/// all supported versions.
pub(crate) fn since(function: &str) -> i64 {
    match function {
        "cuMemAllocAsync" | "cuMemFreeAsync" => 11020,
        "cuGraphInstantiateWithFlags" => 11040,
        "cuStreamWaitValue32_v2" | "cuStreamWriteValue32_v2" => 11070,
        "cuGraphAddKernelNode_v2" | "cuGraphKernelNodeGetParams_v2" => 12000,
        "cuGraphGetEdges_v2"
        | "cuGraphAddDependencies_v2"
        | "cuFuncGetName"
        | "cuGraphNodeGetDependencies_v2" => 12030,
        "cuDeviceGetDevResource"
        | "cuDevSmResourceSplitByCount"
        | "cuDevResourceGenerateDesc"
        | "cuGreenCtxCreate"
        | "cuGreenCtxDestroy"
        | "cuCtxFromGreenCtx" => 12040,
        "cuGreenCtxStreamCreate" => 12050,
        "cuEventElapsedTime_v2" => 12080,
        _ => 0,
    }
}
