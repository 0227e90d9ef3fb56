// The graphs that NCCL's own topology search finds for a machine of several nodes, read from its XML.
#include "graph/topo.h"
#include "graph/xml.h"
#include "comm.h"
#include <cstdio>
static int of(struct ncclTopoSystem* s, struct ncclTopoGraph* g, const char* name) {
  if (ncclTopoCompute(s, g) != ncclSuccess) return 1;
  printf("%s %d %d %g %g %d %d %d\n", name, g->pattern, g->nChannels, g->bwIntra, g->bwInter, g->typeIntra, g->typeInter, g->sameChannels);
  return 0;
}
int main(int argc, char** argv) {
  struct ncclXml* xml; struct ncclTopoSystem* s;
  if (argc != 2 || xmlAlloc(&xml, 4*NCCL_TOPO_XML_MAX_NODES) != ncclSuccess) return 2;
  if (ncclTopoGetXmlFromFile(argv[1], xml, 1) != ncclSuccess) return 3;
  if (ncclTopoGetSystemFromXml(xml, &s, 1) != ncclSuccess) return 4;
  if (ncclTopoComputePaths(s, NULL) != ncclSuccess || ncclTopoSearchInit(s) != ncclSuccess) return 5;
  static struct ncclTopoGraph ring, tree, nvls;
  ring.id = 0; ring.pattern = NCCL_TOPO_PATTERN_RING; ring.minChannels = 1; ring.maxChannels = MAXCHANNELS/2;
  if (of(s, &ring, "ring")) return 6;
  tree.id = 1; tree.pattern = NCCL_TOPO_PATTERN_BALANCED_TREE; tree.minChannels = tree.maxChannels = ring.nChannels;
  if (of(s, &tree, "tree")) return 7;
  nvls.id = 3; nvls.pattern = NCCL_TOPO_PATTERN_NVLS; nvls.minChannels = 1; nvls.maxChannels = MAXCHANNELS;
  if (of(s, &nvls, "nvls")) return 8;
}
