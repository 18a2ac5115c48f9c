#include <cuda.h>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>
static const char *n(CUresult r){const char*s=nullptr;cuGetErrorName(r,&s);return s?s:"?";}
#define S(x) do{CUresult r=(x);if(r){printf("%s: %s\n",#x,n(r));}}while(0)
static CUdeviceptr buf; const int B=264;
static int sms(){std::vector<unsigned> h(B,0);S(cuCtxSynchronize());S(cuMemcpyDtoH(h.data(),buf,B*4));S(cuMemsetD32(buf,0,B));return (int)std::set<unsigned>(h.begin(),h.end()).size();}
static void attr(const char*what,CUgraph g,bool set,int v){size_t c=0;S(cuGraphGetNodes(g,nullptr,&c));std::vector<CUgraphNode> ns(c);S(cuGraphGetNodes(g,ns.data(),&c));
 for(auto x:ns){CUgraphNodeType t;cuGraphNodeGetType(x,&t);if(t!=CU_GRAPH_NODE_TYPE_KERNEL){printf("%s: node of type %d\n",what,t);continue;}
  CUlaunchAttributeValue a{};CUresult r=cuGraphKernelNodeGetAttribute(x,CU_LAUNCH_ATTRIBUTE_PRIORITY,&a);printf("%s: get %s priority %d",what,n(r),a.priority);
  if(set){a.priority=v;r=cuGraphKernelNodeSetAttribute(x,CU_LAUNCH_ATTRIBUTE_PRIORITY,&a);printf("; set %d %s",v,n(r));}
  CUDA_KERNEL_NODE_PARAMS p{};r=cuGraphKernelNodeGetParams(x,&p);printf("; params %s ctx %p func %p\n",n(r),p.ctx,p.func);}}
static void go(const char*what,CUgraph g,CUstream s){CUgraphExec e;CUresult r=cuGraphInstantiateWithFlags(&e,g,8);printf("%s: instantiate %s",what,n(r));if(r){puts("");return;}r=cuGraphLaunch(e,s);printf(", launch %s",n(r));printf(", on %d SMs\n",sms());cuGraphExecDestroy(e);}
static void round_(int r,CUdevice d,const std::string&ptx){
 CUcontext pc;S(cuDevicePrimaryCtxRetain(&pc,d));S(cuCtxSetCurrent(pc));printf("round %d primary %p\n",r,pc);
 CUmodule m;S(cuModuleLoadData(&m,ptx.c_str()));CUfunction k;S(cuModuleGetFunction(&k,m,"where"));
 S(cuMemAlloc(&buf,B*4));S(cuMemsetD32(buf,0,B));
 int least,greatest;S(cuCtxGetStreamPriorityRange(&least,&greatest));
 void*args[]={&buf};
 auto kernel=[&](CUstream s){S(cuLaunchKernel(k,B,1,1,32,1,1,0,s,args,nullptr));};
 auto capture=[&](CUstream s){CUgraph g;S(cuStreamBeginCapture(s,CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));kernel(s);kernel(s);S(cuStreamEndCapture(s,&g));return g;};
 for(int t=0;t<2;t++){
 CUdevResource all{},part{};S(cuDeviceGetDevResource(d,&all,CU_DEV_RESOURCE_TYPE_SM));unsigned groups=1;S(cuDevSmResourceSplitByCount(&part,&groups,&all,nullptr,0,16));
 CUdevResourceDesc desc;S(cuDevResourceGenerateDesc(&desc,&part,1));CUgreenCtx gc;S(cuGreenCtxCreate(&gc,desc,d,CU_GREEN_CTX_DEFAULT_STREAM));
 CUstream gs;S(cuGreenCtxStreamCreate(&gs,gc,CU_STREAM_NON_BLOCKING,least));
 CUgraph b=capture(gs);
 attr(t?"without CtxFromGreen, set other":"without CtxFromGreen, set same",b,true,t?greatest:least);
 CUcontext cur;S(cuCtxGetCurrent(&cur));printf("current %p\n",cur);
 CUcontext cc;S(cuCtxFromGreenCtx(&cc,gc));
 CUgraph h=capture(gs);attr("with CtxFromGreen",h,true,greatest);
 go("green graph",h,gs);
 S(cuGraphDestroy(b));S(cuGraphDestroy(h));S(cuStreamDestroy(gs));S(cuGreenCtxDestroy(gc));}
 S(cuModuleUnload(m));S(cuMemFree(buf));S(cuDevicePrimaryCtxRelease(d));
}
int main(int argc,char**argv){
 S(cuInit(0));CUdevice d;S(cuDeviceGet(&d,0));
 std::ifstream f(argv[1]);std::string ptx((std::istreambuf_iterator<char>(f)),{});
 for(int r=0;r<2;r++)round_(r,d,ptx);return 0;}
