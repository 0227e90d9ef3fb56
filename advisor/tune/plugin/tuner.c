/* A tuner for NCCL 2.22 and later that applies the rules of one CSV file, and nothing else.
 *
 * Build:  cc -O2 -fPIC -shared -fvisibility=hidden -o libnccl-tuner-advisor.so tuner.c
 * Use:    NCCL_TUNER_PLUGIN=/path/libnccl-tuner-advisor.so NCCL_TUNER_CONFIG_FILE=/path/rules.csv
 *
 * A rule makes its algorithm and protocol cost nothing, so that NCCL takes it; where it leaves
 * several (ring|tree, ll|simple, any) the cheapest of them by NCCL's own figures. The rest stays
 * NCCL's: calls that no rule matches, what NCCL marked as not available, the number of channels
 * where a rule says -1, and the constants of its cost model. A rule file with a mistake stops the
 * job at initialisation, naming file and line: half a rule set on some ranks would hang.
 *
 * File format (that of NVIDIA's example plugin, and | and any), one rule a line, first match wins:
 *   colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]
 * Sizes are total bytes (ranks x count for allgather and reducescatter) and inclusive; -1 means
 * "any" (channels: leave to NCCL). Lines that start with # and empty lines are skipped.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The part of NCCL's plugin interface that this needs; values as in nccl.h. */
enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_USAGE = 5 };
enum { LOG_WARN = 2, LOG_INFO = 3, SUBSYS_TUNING = 0x40 };
typedef void (*logger_fn)(int level, unsigned long flags, const char *file, int line,
                          const char *format, ...);

enum { MAX_LINE = 512, MAX_FIELDS = 10, MIN_FIELDS = 8, MAX_RULES = 4096, MAX_REPORTED = 20 };
enum { TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT };
enum { BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLREDUCE };
enum { LL, LL128, SIMPLE };

static const char *const FUNCTIONS[] = {"broadcast", "reduce", "allgather", "reducescatter",
                                        "allreduce", NULL};
static const char *const ALGORITHMS[] = {"tree",          "ring", "collnet_direct",
                                         "collnet_chain", "nvls", "nvls_tree", "pat", NULL};
static const char *const PROTOCOLS[] = {"ll", "ll128", "simple", NULL};

typedef struct {
  int function;
  unsigned algorithms, protocols; /* a bit each, lowest first */
  uint64_t min_bytes, max_bytes;
  int64_t channels, nodes, ranks, pipe_ops, registered;
} rule;

typedef struct {
  logger_fn log;
  int64_t nodes, ranks;
  size_t count, mistakes;
  rule rules[MAX_RULES];
} tuner;

static void say(const tuner *t, int level, const char *text) {
  if (t->log != NULL)
    t->log(level, SUBSYS_TUNING, __FILE__, __LINE__, "TUNER/advisor: %s", text);
  else if (level == LOG_WARN)
    fprintf(stderr, "TUNER/advisor: %s\n", text);
}

static void mistake(tuner *t, const char *path, size_t line, const char *what, const char *value) {
  char text[MAX_LINE * 2];
  if (++t->mistakes > MAX_REPORTED) return;
  snprintf(text, sizeof text, "%.400s:%zu: %s%s%.60s%s", path, line, what, value ? " '" : "",
           value ? value : "", value ? "'" : "");
  say(t, LOG_WARN, text);
}

static int index_of(const char *const *names, const char *name) {
  for (int i = 0; names[i] != NULL; i++)
    if (strcmp(names[i], name) == 0) return i;
  return -1;
}

/* Names joined by '|' as a set of bits; "any" is all of them. Returns 0 on an unknown name. */
static int parse_set(const char *const *names, char *text, unsigned *set) {
  *set = 0;
  if (strcmp(text, "any") == 0) {
    while (*names++ != NULL) *set = *set << 1 | 1;
    return 1;
  }
  for (char *at = text, *bar = text; bar != NULL; at = bar + 1) {
    bar = strchr(at, '|');
    if (bar != NULL) *bar = '\0';
    int index = index_of(names, at);
    if (bar != NULL) *bar = '|';
    if (index < 0) return 0;
    *set |= 1u << index;
  }
  return 1;
}

/* NCCL has these combinations at all; whether the machine allows them NCCL decides per call. */
static int is_legal(int function, int algorithm, int protocol) {
  if (algorithm == RING) return 1;
  if (algorithm == TREE) return function == ALLREDUCE;
  if (protocol != SIMPLE) return 0;
  if (function == ALLREDUCE) return algorithm != PAT;
  if (function == ALLGATHER || function == REDUCESCATTER)
    return algorithm == NVLS || algorithm == COLLNET_DIRECT || algorithm == PAT;
  return 0;
}

/* Each name needs a combination with the other set; of "any" it is enough that one has. */
static int is_legal_set(int function, unsigned algorithms, unsigned protocols) {
  const unsigned all_algorithms = (1u << (PAT + 1)) - 1, all_protocols = (1u << (SIMPLE + 1)) - 1;
  unsigned used_algorithms = 0, used_protocols = 0;
  for (int a = TREE; a <= PAT; a++)
    for (int p = LL; p <= SIMPLE; p++)
      if (algorithms >> a & 1 && protocols >> p & 1 && is_legal(function, a, p)) {
        used_algorithms |= 1u << a;
        used_protocols |= 1u << p;
      }
  return used_algorithms != 0 &&
         (algorithms == all_algorithms || algorithms == used_algorithms) &&
         (protocols == all_protocols || protocols == used_protocols);
}

/* Digits only: strtoull would take signs, spaces and prefixes. */
static int parse_size(const char *text, uint64_t *value) {
  uint64_t result = 0;
  if (*text == '\0') return 0;
  for (; *text != '\0'; text++) {
    if (*text < '0' || *text > '9') return 0;
    uint64_t digit = (uint64_t)(*text - '0');
    if (result > (UINT64_MAX - digit) / 10) return 0;
    result = result * 10 + digit;
  }
  *value = result;
  return 1;
}

/* -1, or a number from `least` to `most`. */
static int parse_number(const char *text, int64_t least, int64_t most, int64_t *value) {
  uint64_t number;
  if (strcmp(text, "-1") == 0) {
    *value = -1;
    return 1;
  }
  if (!parse_size(text, &number) || number > (uint64_t)most || (int64_t)number < least) return 0;
  *value = (int64_t)number;
  return 1;
}

/* Cuts a line at commas, keeps empty fields, trims blanks. Returns how many, or MAX_FIELDS + 1. */
static int split(char *line, char *fields[MAX_FIELDS]) {
  int count = 0;
  for (char *at = line;;) {
    char *comma = strchr(at, ',');
    if (comma != NULL) *comma = '\0';
    if (count == MAX_FIELDS) return MAX_FIELDS + 1;
    while (*at == ' ' || *at == '\t') at++;
    size_t length = strlen(at);
    while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t')) at[--length] = '\0';
    fields[count++] = at;
    if (comma == NULL) return count;
    at = comma + 1;
  }
}

static void parse_rule(tuner *t, const char *path, size_t number, char *line) {
  char *f[MAX_FIELDS];
  rule r = {.pipe_ops = -1, .registered = -1};
  int count = split(line, f);
  size_t before = t->mistakes;
  if (count < MIN_FIELDS || count > MAX_FIELDS) {
    mistake(t, path, number, "expected 8 to 10 comma-separated fields", NULL);
    return;
  }
  if (strcmp(f[0], "colltype") == 0) {
    mistake(t, path, number, "a header row is not part of the format", NULL);
    return;
  }
  if ((r.function = index_of(FUNCTIONS, f[0])) < 0)
    mistake(t, path, number, "unknown collective (lower case)", f[0]);
  if (!parse_size(f[1], &r.min_bytes)) mistake(t, path, number, "minbytes is no size:", f[1]);
  if (!parse_size(f[2], &r.max_bytes)) mistake(t, path, number, "maxbytes is no size:", f[2]);
  if (!parse_set(ALGORITHMS, f[3], &r.algorithms))
    mistake(t, path, number, "unknown algorithm (lower case)", f[3]);
  if (!parse_set(PROTOCOLS, f[4], &r.protocols))
    mistake(t, path, number, "unknown protocol (lower case)", f[4]);
  if (!parse_number(f[5], 1, 64, &r.channels))
    mistake(t, path, number, "channels must be -1 or 1 to 64, not", f[5]);
  if (!parse_number(f[6], 1, INT32_MAX, &r.nodes))
    mistake(t, path, number, "nNodes must be -1 or at least 1, not", f[6]);
  if (!parse_number(f[7], 1, INT32_MAX, &r.ranks))
    mistake(t, path, number, "nRanks must be -1 or at least 1, not", f[7]);
  if (count > 8 && !parse_number(f[8], 1, INT32_MAX, &r.pipe_ops))
    mistake(t, path, number, "numPipeOps must be -1 or at least 1, not", f[8]);
  if (count > 9 && !parse_number(f[9], 0, 1, &r.registered))
    mistake(t, path, number, "regBuff must be -1, 0 or 1, not", f[9]);
  if (t->mistakes != before) return;
  if (r.min_bytes > r.max_bytes) mistake(t, path, number, "minbytes exceeds maxbytes", NULL);
  if (!is_legal_set(r.function, r.algorithms, r.protocols))
    mistake(t, path, number, "NCCL has no such algorithm and protocol for", f[0]);
  if (r.nodes > 0 && r.ranks > 0 && r.ranks < r.nodes)
    mistake(t, path, number, "nRanks is below nNodes", NULL);
  if (t->mistakes != before) return;
  if (t->count == MAX_RULES) {
    mistake(t, path, number, "more than 4096 rules", NULL);
    return;
  }
  t->rules[t->count++] = r;
}

/* One line without its end into `line`. Returns 0 at the end, 1 for a line, -1 when it is too
 * long or holds a NUL byte (it is then skipped to its end). */
static int read_line(FILE *file, char *line) {
  size_t length = 0;
  int byte, bad = 0, any = 0;
  while ((byte = fgetc(file)) != EOF && byte != '\n') {
    any = 1;
    if (byte == '\0' || length == MAX_LINE - 1)
      bad = 1;
    else if (!bad)
      line[length++] = (char)byte;
  }
  if (length > 0 && line[length - 1] == '\r') length--;
  line[length] = '\0';
  if (byte == EOF && !any) return 0;
  return bad ? -1 : 1;
}

static int load(tuner *t) {
  const char *named = getenv("NCCL_TUNER_CONFIG_FILE");
  const char *path = named != NULL && *named != '\0' ? named : "nccl_tuner.conf";
  char line[MAX_LINE], text[MAX_LINE * 2];
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    if (path != named && errno == ENOENT) {
      say(t, LOG_INFO, "no rules: NCCL_TUNER_CONFIG_FILE is not set and ./nccl_tuner.conf absent");
      return SUCCESS;
    }
    snprintf(text, sizeof text, "%.400s: %s", path, strerror(errno));
    say(t, LOG_WARN, text);
    return INVALID_USAGE;
  }
  int status;
  for (size_t number = 1; (status = read_line(file, line)) != 0; number++) {
    char *start = line;
    while (*start == ' ' || *start == '\t') start++;
    if (status < 0)
      mistake(t, path, number, "the line is longer than 511 bytes or holds a NUL byte", NULL);
    else if (*start != '\0' && *start != '#')
      parse_rule(t, path, number, start);
    if (t->count == MAX_RULES && t->mistakes > MAX_REPORTED) break;
  }
  if (ferror(file)) {
    snprintf(text, sizeof text, "%.400s: cannot be read", path);
    say(t, LOG_WARN, text);
    t->mistakes++;
  }
  fclose(file);
  if (t->mistakes > 0) {
    snprintf(text, sizeof text, "%.400s: %zu mistake(s); correct the file or unset "
             "NCCL_TUNER_PLUGIN", path, t->mistakes);
    say(t, LOG_WARN, text);
    return INVALID_USAGE;
  }
  snprintf(text, sizeof text, "%zu rule(s) from %.400s", t->count, path);
  say(t, LOG_INFO, text);
  return SUCCESS;
}

static int init(void **context, size_t ranks, size_t nodes, logger_fn log) {
  tuner *t = calloc(1, sizeof *t);
  *context = NULL;
  if (t == NULL) return SYSTEM_ERROR;
  t->log = log;
  t->ranks = (int64_t)ranks;
  t->nodes = (int64_t)nodes;
  int status = load(t);
  if (status != SUCCESS) {
    free(t);
    return status;
  }
  *context = t;
  return SUCCESS;
}

static int init_v3(size_t ranks, size_t nodes, logger_fn log, void **context) {
  return init(context, ranks, nodes, log);
}

static int init_v5(void **context, uint64_t communicator, size_t ranks, size_t nodes,
                   logger_fn log, void *nvlink_domains, void *constants) {
  (void)communicator;
  (void)nvlink_domains;
  (void)constants;
  return init(context, ranks, nodes, log);
}

static int matches(const tuner *t, const rule *r, int function, size_t bytes, int pipe_ops,
                   int registered) {
  return r->function == function && bytes >= r->min_bytes && bytes <= r->max_bytes &&
         (r->nodes < 0 || r->nodes == t->nodes) && (r->ranks < 0 || r->ranks == t->ranks) &&
         (r->pipe_ops < 0 || r->pipe_ops == pipe_ops) &&
         (r->registered < 0 || registered < 0 || r->registered == registered);
}

/* `table` is declared float** by NCCL but is one block of algorithms x protocols floats. */
static int choose(void *context, int function, size_t bytes, int pipe_ops, float **table,
                  int algorithms, int protocols, int registered, int *channels) {
  const tuner *t = context;
  float *cost = (float *)(void *)table;
  if (t == NULL || cost == NULL) return SUCCESS;
  for (size_t i = 0; i < t->count; i++) {
    const rule *r = &t->rules[i];
    if (!matches(t, r, function, bytes, pipe_ops, registered)) continue;
    float *best = NULL; /* as NCCL scans: of equals the first */
    for (int a = 0; a < algorithms && a <= PAT; a++)
      for (int p = 0; p < protocols && p <= SIMPLE; p++) {
        float *cell = &cost[a * protocols + p];
        if (r->algorithms >> a & 1 && r->protocols >> p & 1 && *cell >= 0.0f &&
            (best == NULL || *cell < *best))
          best = cell;
      }
    if (best == NULL) continue; /* not available here: the next rule may be */
    *best = 0.0f;
    if (r->channels > 0 && channels != NULL) *channels = (int)r->channels;
    return SUCCESS;
  }
  return SUCCESS;
}

static int choose_v3(void *context, int function, size_t bytes, int pipe_ops, float **table,
                     int algorithms, int protocols, int *channels) {
  return choose(context, function, bytes, pipe_ops, table, algorithms, protocols, -1, channels);
}

static int finish(void *context) {
  free(context);
  return SUCCESS;
}

/* 2.22 and 2.23 */
EXPORT const struct {
  const char *name;
  int (*init)(size_t, size_t, logger_fn, void **);
  int (*get_coll_info)(void *, int, size_t, int, float **, int, int, int *);
  int (*destroy)(void *);
} ncclTunerPlugin_v3 = {"advisor", init_v3, choose_v3, finish};

/* 2.24 to 2.27 */
EXPORT const struct {
  const char *name;
  int (*init)(size_t, size_t, logger_fn, void **);
  int (*get_coll_info)(void *, int, size_t, int, float **, int, int, int, int *);
  int (*destroy)(void *);
} ncclTunerPlugin_v4 = {"advisor", init_v3, choose, finish};

/* 2.28 and later (2.30 tries v6 first, then this) */
EXPORT const struct {
  const char *name;
  int (*init)(void **, uint64_t, size_t, size_t, logger_fn, void *, void *);
  int (*get_coll_info)(void *, int, size_t, int, float **, int, int, int, int *);
  int (*finalize)(void *);
} ncclTunerPlugin_v5 = {"advisor", init_v5, choose, finish};
