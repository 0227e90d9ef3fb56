// What RCCL finds for eight MI300X in each of several nodes, read from its XML, and what its table of
// times then holds; with all that it links against and does not call for a machine read from a file.
#include "core.h"
#include "comm.h"
#include "graph.h"
#include "topo.h"
#include "transport.h"
#include "xml.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#define NEVER(name) { fprintf(stderr, "RCCL asked for " #name "\n"); abort(); }
extern "C" {
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) NEVER(cudaDeviceGetAttribute)
cudaError_t cudaDeviceGetByPCIBusId(int*, const char*) NEVER(cudaDeviceGetByPCIBusId)
cudaError_t cudaDeviceGetPCIBusId(char*, int, int) NEVER(cudaDeviceGetPCIBusId)
cudaError_t cudaGetDevice(int*) NEVER(cudaGetDevice)
cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) NEVER(cudaGetDeviceProperties)
const char* cudaGetErrorString(cudaError_t) NEVER(cudaGetErrorString)
}
cudaError_t hipGetDeviceProperties(hipDeviceProp_t*, int) NEVER(hipGetDeviceProperties)
ncclResult_t bootstrapIntraNodeAllGather(void*, int*, int, int, void*, int) NEVER(bootstrapIntraNodeAllGather)
ncclResult_t initChannel(ncclComm*, int) NEVER(initChannel)
int ncclNetVersion(ncclComm*) NEVER(ncclNetVersion)
ncclResult_t rocm_smi_getDeviceIndexByPciBusId(char const*, unsigned*) NEVER(rocm_smi)
ncclResult_t rocm_smi_getDevicePciBusIdString(unsigned, char*, unsigned long) NEVER(rocm_smi)
ncclResult_t rocm_smi_getLinkInfo(int, int, int*, int*, int*) NEVER(rocm_smi)
ncclResult_t rocm_smi_getNumDevice(unsigned*) NEVER(rocm_smi)
ncclResult_t rocm_smi_init() NEVER(rocm_smi)
struct ncclTransport* ncclTransports[NTRANSPORTS];
const char* ncclFuncStr[NCCL_NUM_FUNCTIONS + 2];
const char* ncclAlgoStr[NCCL_NUM_ALGORITHMS] = {"Tree", "Ring"};
const char* ncclProtoStr[NCCL_NUM_PROTOCOLS] = {"LL", "LL128", "Simple"};
thread_local int ncclDebugNoWarn;
int ncclDebugLevel = -1;
void ncclDebugLog(ncclDebugLogLevel, unsigned long, const char*, int, const char*, ...) {}

static int graph(struct ncclTopoSystem* system, struct ncclTopoGraph* g, const char* name) {
  if (ncclTopoCompute(system, g) != ncclSuccess) return 1;
  printf("graph %s %d %d %g %g %d %d %d\n", name, g->pattern, g->nChannels, g->bwIntra, g->bwInter, g->typeIntra, g->typeInter, g->sameChannels);
  return 0;
}
int main(int argc, char** argv) {
  struct ncclXml* xml; struct ncclTopoSystem* s;
#if RELEASE >= 22100
  if (argc != 3 || xmlAlloc(&xml, NCCL_TOPO_XML_MAX_NODES) != ncclSuccess) return 2;
#else
  if (argc != 3 || ncclCalloc(&xml, 1) != ncclSuccess) return 2;
#define ncclTopoGetSystemFromXml(xml, system, host) ncclTopoGetSystemFromXml(xml, system)
#endif
  if (ncclTopoGetXmlFromFile(argv[1], xml, 1) != ncclSuccess) return 3;
  if (ncclTopoGetSystemFromXml(xml, &s, 0) != ncclSuccess) return 4;
  struct ncclComm* comm = (struct ncclComm*)calloc(1, sizeof(struct ncclComm));
  comm->topo = s; comm->nNodes = atoi(argv[2]); comm->nRanks = s->nRanks = 8*comm->nNodes;
#if RELEASE >= 22000
  s->nHosts = comm->nNodes;
#endif
  comm->WarpSize = 64; s->netGdrLevel = -2;
  if (ncclTopoComputePaths(s, NULL) != ncclSuccess || ncclTopoTrimSystem(s, comm) != ncclSuccess) return 5;
  if (ncclTopoComputePaths(s, NULL) != ncclSuccess || ncclTopoSearchInit(s) != ncclSuccess) return 6;
  static struct ncclTopoGraph ring, tree, none;
  ring.id = 0; ring.pattern = NCCL_TOPO_PATTERN_RING; ring.minChannels = 1; ring.maxChannels = MAXCHANNELS/2;
  if (graph(s, &ring, "ring")) return 7;
  tree.id = 1; tree.pattern = NCCL_TOPO_PATTERN_BALANCED_TREE; tree.maxChannels = ring.nChannels;
  tree.minChannels = s->nodes[NET].count ? 1 : ring.nChannels;
  if (graph(s, &tree, "tree")) return 8;
  struct ncclTopoGraph* graphs[NCCL_NUM_ALGORITHMS] = {&tree, &ring};
  for (int a = 2; a < NCCL_NUM_ALGORITHMS; a++) graphs[a] = &none;
  if (ncclTopoTuneModel(comm, 94, 94, graphs) != ncclSuccess) return 9;
  const char* functions[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
  for (int f = 0; f < 5; f++) for (int a = 0; a < 2; a++) for (int p = 0; p < 3; p++) {
    if (a == 0 && f != 4) continue;
    printf("cell %s %s %s %.9g %.9g", functions[f], ncclAlgoStr[a], ncclProtoStr[p], comm->latencies[f][a][p], comm->bandwidths[f][a][p]);
    for (int bits = 0; bits < 38; bits++) {
      struct ncclInfo info = {}; float time;
      info.comm = comm; info.coll = (ncclFunc_t)f; info.nBytes = (1ul << bits) + (1ul << bits)/3;
      if (ncclTopoGetAlgoTime(&info, a, p, 1, &time) != ncclSuccess) return 10;
      printf(" %.9g", time);
    }
    printf("\n");
  }
}
