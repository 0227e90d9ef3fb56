// What RCCL finds for eight MI300X in each of several nodes, read from its XML, and what its table of
// times then holds and chooses. What a machine read from a file does not call stays undefined.
#include "core.h"
#include "comm.h"
#include "graph.h"
#include "topo.h"
#include "transport.h"
#include "xml.h"
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
struct ncclTransport* ncclTransports[NTRANSPORTS];
decltype(ncclFuncStr) ncclFuncStr;
const char* ncclAlgoStr[NCCL_NUM_ALGORITHMS] = {"Tree", "Ring"};
const char* ncclProtoStr[NCCL_NUM_PROTOCOLS] = {"LL", "LL128", "Simple"};
int64_t ncclParamMinNchannels() { return -2; }
int64_t ncclParamMaxNchannels() { return -2; }
thread_local int ncclDebugNoWarn;
int ncclDebugLevel = -1;
void ncclDebugLog(ncclDebugLogLevel, unsigned long, const char*, int, const char*, ...) {}

#if RELEASE >= 22200
#include "enqueue.h"
#if RELEASE >= 22600
#include "rccl_common.h"
static ncclResult_t connects(int* can, struct ncclComm*, struct ncclTopoGraph*, struct ncclPeerInfo*, struct ncclPeerInfo*) {
  *can = 1;
  return ncclSuccess;
}
#endif
#include "choice.h"  // cut from enqueue.cc and collectives.cc
#if RELEASE >= 22700
#define DIRECT rcclUseAllGatherDirect
#endif
typedef struct ncclTaskColl Call;
static ncclResult_t algoTime(struct ncclComm* comm, int f, int a, int p, size_t bytes, float* time) {
  return ncclTopoGetAlgoTime(comm, f, a, p, bytes, 1, time
#if RELEASE < 22300
    , nullptr
#endif
  );
}
static ncclResult_t choose(struct ncclComm* comm, Call* call, size_t bytes) {
  float table[NCCL_NUM_ALGORITHMS][NCCL_NUM_PROTOCOLS];
  for (auto& row : table) for (float& time : row) time = NCCL_ALGO_PROTO_IGNORE;
#if RELEASE < 22300
  int algo = NCCL_ALGO_UNDEF, proto = NCCL_PROTO_UNDEF; float time = 3600000000.0;
  NCCLCHECK(updateCollCostTable(comm, call, bytes, 0, 0, 1, (float**)table, &algo, &proto, &time));
  return topoGetAlgoInfo(comm, call, bytes, (float**)table, algo, proto, time, nullptr);
#else
  NCCLCHECK(updateCollCostTable(comm, call, bytes, 0, 0, 1, (float**)table));
  return topoGetAlgoInfo(comm, call, bytes, (float**)table, nullptr);
#endif
}
#else
struct Call { ncclFunc_t func; int algorithm, protocol, nMaxChannels; };
static ncclResult_t algoTime(struct ncclComm* comm, int f, int a, int p, size_t bytes, float* time) {
  struct ncclInfo info = {};
  info.comm = comm; info.coll = (ncclFunc_t)f; info.nBytes = bytes;
  return ncclTopoGetAlgoTime(&info, a, p, 1, time);
}
static ncclResult_t choose(struct ncclComm* comm, Call* call, size_t bytes) {
  float least = -1, time;
  for (int a = 0; a < 2; a++) for (int p = 0; p < NCCL_NUM_PROTOCOLS; p++) {
    NCCLCHECK(algoTime(comm, call->func, a, p, bytes, &time));
    if (time < 0 || (least >= 0 && time >= least)) continue;
    least = time; call->algorithm = a; call->protocol = p;
  }
  return ncclSuccess;
}
#endif
static int graph(struct ncclTopoSystem* system, struct ncclTopoGraph* g, const char* name) {
  if (ncclTopoCompute(system, g) != ncclSuccess) return 1;
  printf("graph %s %d %d %g %g %d %d %d\n", name, g->pattern, g->nChannels, g->bwIntra, g->bwInter, g->typeIntra, g->typeInter, g->sameChannels);
  return 0;
}
int main(int argc, char** argv) {
  struct ncclXml* xml; struct ncclTopoSystem* s;
#if RELEASE >= 22100
  if (argc != 4 || xmlAlloc(&xml, NCCL_TOPO_XML_MAX_NODES) != ncclSuccess) return 2;
#else
  if (argc != 4 || ncclCalloc(&xml, 1) != ncclSuccess) return 2;
#define ncclTopoGetSystemFromXml(xml, system, host) ncclTopoGetSystemFromXml(xml, system)
#endif
  if (ncclTopoGetXmlFromFile(argv[1], xml, 1) != ncclSuccess) return 3;
  if (ncclTopoGetSystemFromXml(xml, &s, 0) != ncclSuccess) return 4;
  struct ncclComm* comm = (struct ncclComm*)calloc(1, sizeof(struct ncclComm));
  comm->topo = s; comm->nNodes = atoi(argv[2]); comm->nRanks = s->nRanks = 8*comm->nNodes;
#if RELEASE >= 22000
  s->nHosts = comm->nNodes;
#endif
  comm->WarpSize = 64; s->netGdrLevel = -2; comm->nChannels = atoi(argv[3]);
#if RELEASE >= 22200
  int unused;
  if (ncclTopoCpuType(s, &comm->cpuArch, &comm->cpuVendor, &unused) != ncclSuccess) return 11;
#endif
#if RELEASE >= 22600
  static struct ncclTransport p2p = {"P2P", connects};
  ncclTransports[TRANSPORT_P2P] = &p2p;
  comm->peerInfo = (struct ncclPeerInfo*)calloc(comm->nRanks, sizeof(*comm->peerInfo));
  rcclSetPxn(comm, unused);
#define WITH comm
#else
#define WITH NULL
#endif
  if (ncclTopoComputePaths(s, WITH) != ncclSuccess || ncclTopoTrimSystem(s, comm) != ncclSuccess) return 5;
  if (ncclTopoComputePaths(s, WITH) != ncclSuccess || ncclTopoSearchInit(s) != ncclSuccess) return 6;
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
      float time;
      if (algoTime(comm, f, a, p, (1ul << bits) + (1ul << bits)/3, &time) != ncclSuccess) return 10;
      printf(" %.9g", time);
    }
    printf("\n");
  }
  for (int f = 0; f < 5; f++) for (int bits = 0; bits < 38; bits++) {
    Call call = {}; call.func = (ncclFunc_t)f;
    size_t bytes = (1ul << bits) + (1ul << bits)/3;
    if (choose(comm, &call, bytes) != ncclSuccess) return 12;
    const char* algorithm = ncclAlgoStr[call.algorithm];
#ifdef DIRECT
    if (f == ncclFuncAllGather && DIRECT(comm, bytes)) algorithm = "Direct";
#endif
    printf("choice %s %d %s %s %d\n", functions[f], bits, algorithm, ncclProtoStr[call.protocol], call.nMaxChannels);
  }
}
