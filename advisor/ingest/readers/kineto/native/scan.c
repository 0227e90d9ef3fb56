/* Turns a chunk of a Kineto trace (a JSON array of whole events) into rows, in one pass.
 *
 * It accepts only text that is regular in every respect, and then yields exactly what parser.py
 * yields; a chunk with anything else in it is refused and goes that way. Traces are untrusted:
 * reads, depth and memory are bounded. */
#include "event.h"

#define MAX_CATEGORIES 64
#define MOST_POSITIONS (1 << 20)
#define MOST_RANKS (1 << 20) /* vocabulary/numbers.py */
#define TRY(condition) do { if (!(condition)) return REFUSED; } while (0)

enum { DONE, REFUSED, FULL, ASK };
enum { NOT_READ, SPAN, INSTANT, META, IGNORED }; /* of phases */
enum { TEXT, INT64, INT32 };

typedef struct {
    uint8_t text[128];
    size_t size;
    int32_t class_;
    uint8_t on_device, dropped;
} category_rule;

typedef struct {
    keys field, arg;
    uint8_t phase[256], comm_kind[MAX_COMM];
    int comm, shapes, merged; /* columns of comm_event; how many at their end are shapes */
    int32_t metadata_class;
    triples known;
    category_rule rule[MAX_CATEGORIES];
    int rules;
    uint32_t batches;
    /* The chunk at hand, and what was in the batch before it. */
    const uint8_t *at, *end;
    int32_t rank, rows, comm_rows;
    int64_t base_ns, first_id, position;
    value ask_category, ask_name;
    uint8_t ask_flags, ask_shapes, began;
} scanner;

static void roll_back_comm(const scanner *s, batch *b, int32_t rows) {
    b->comm_rows = rows;
    b->comm_rank.size = (size_t)rows * 4, b->comm_id.size = (size_t)rows * 8;
    for (int i = 0; i < s->comm; i++) {
        b->comm_valid[i].size = ((size_t)rows + 7) / 8;
        if (s->comm_kind[i] != TEXT) {
            b->comm[i].data.size = (size_t)rows * 8;
            continue;
        }
        int32_t end;
        memcpy(&end, b->comm[i].offsets.data + (size_t)rows * 4, 4);
        b->comm[i].data.size = (size_t)end;
        b->comm[i].offsets.size = ((size_t)rows + 1) * 4;
    }
}

static int comm_row(const scanner *s, batch *b, const event *e, int32_t rank, int64_t id, int asks) {
    int32_t row = b->comm_rows;
    int any = 0;
    if (!put(&b->comm_rank, &rank, 4) || !put(&b->comm_id, &id, 8)) return FULL;
    for (int i = 0; i < s->comm; i++) {
        const value *v = &e->arg[A_COMM + i];
        int is = (e->args >> (A_COMM + i) & 1) && (asks || i < s->comm - s->shapes);
        texts *to = &b->comm[i];
        if (s->comm_kind[i] == TEXT) {
            int written = is ? text_of(v, &to->data) : 1;
            TRY(written >= 0);
            if (!written || !put_end(to)) return FULL;
        } else {
            int64_t number = 0;
            is = integer(v, is, &number);
            TRY(is >= 0 && (s->comm_kind[i] == INT64 || (number >= INT32_MIN && number <= INT32_MAX)));
            if (!put(&to->data, &number, 8)) return FULL;
        }
        if (!put_valid(&b->comm_valid[i], row, is)) return FULL;
        any |= is;
    }
    if (any) b->comm_rows++;
    else roll_back_comm(s, b, row);
    return DONE;
}

static int code_of(const scanner *s, batch *b, triple *t) {
    if (t->batch == s->batches) return DONE;
    const uint8_t *arena = s->known.arena.data;
    if (!put(&b->name.data, arena + t->name, t->name_size) ||
        !put(&b->category.data, arena + t->category, t->category_size) || !put_end(&b->name) ||
        !put_end(&b->category) || !put(&b->class_of, &t->class_, 4))
        return FULL;
    t->batch = s->batches, t->code = b->names++;
    return DONE;
}

static triple *add_by_rule(scanner *s, const value *category, const value *name, uint8_t flags,
                           uint64_t hash, uint32_t place) {
    size_t size = (size_t)(category->end - category->at);
    for (int i = 0; i < s->rules; i++) {
        const category_rule *rule = &s->rule[i];
        if (rule->size != size || memcmp(rule->text, category->at, size)) continue;
        triple *made = add(&s->known, category, name, flags, hash, place);
        if (made) made->class_ = rule->class_, made->on_device = rule->on_device, made->dropped = rule->dropped;
        return made;
    }
    return NULL;
}

static void put_int(batch *b, int column, int valid, int64_t number) {
    if (WIDTH[column] == 4) ((int32_t *)(void *)b->column[column])[b->rows] = valid ? (int32_t)number : 0;
    else ((int64_t *)(void *)b->column[column])[b->rows] = valid ? number : 0;
    set_bit(b->valid[column], b->rows, valid);
}

static int row(scanner *s, batch *b, const event *e) {
    static const uint8_t empty;
    value category = {.at = &empty, .end = &empty};
    uint32_t fields = e->fields, args = e->args;
    const value *ph = &e->field[PH], *name = &e->field[NAME];
    TRY(fields >> PH & 1 && ph->type == '"' && ph->plain && ph->end - ph->at == 1);
    int kind = s->phase[*ph->at];
    TRY(kind != NOT_READ);
    if (kind == IGNORED) return DONE;
    if (kind == META && !(args >> A_NAME & 1)) return DONE; /* says nothing that is kept */
    TRY(fields >> NAME & 1 && name->type == '"' && name->plain);
    int64_t stream = 0, pid = 0, tid = 0, device = 0, correlation = 0, external = 0, bytes = 0, rank = s->rank;
    int has_stream = integer(&e->arg[A_STREAM], args >> A_STREAM & 1, &stream);
    TRY(has_stream >= 0);
    int has_category = kind == META ? 1 : fields >> CAT & 1;
    if (has_category) category = kind == META ? e->arg[A_NAME] : e->field[CAT];
    TRY(!has_category || (category.type == '"' && category.plain));
    uint8_t flags = kind == META ? METADATA
                                 : (uint8_t)((has_stream ? ON_STREAM : 0) | (has_category ? 0 : NO_CATEGORY));
    uint32_t shape_bits = ((1u << s->shapes) - 1) << (A_COMM + s->comm - s->shapes);
    uint32_t fact_bits = ((1u << (s->comm - s->shapes)) - 1) << A_COMM;
    int shapes = kind != META && (args & shape_bits);

    uint64_t hash;
    uint32_t place;
    triple *t = find(&s->known, &category, name, flags, &hash, &place);
    if (!t && (kind == META || has_category)) {
        if (kind == META) {
            t = add(&s->known, &category, name, flags, hash, place);
            if (!t) return FULL;
            t->class_ = s->metadata_class, t->asks = 1;
        } else {
            t = add_by_rule(s, &category, name, flags, hash, place);
        }
    }
    if (!t || (shapes && !t->asks)) {
        s->ask_category = category, s->ask_name = *name, s->ask_flags = flags, s->ask_shapes = shapes != 0;
        return ASK;
    }
    if (t->dropped) return DONE;

    int has_pid = integer(&e->field[PID_], fields >> PID_ & 1, &pid);
    int has_tid = integer(&e->field[TID_], fields >> TID_ & 1, &tid);
    int has_device = integer(&e->arg[A_DEVICE], args >> A_DEVICE & 1, &device);
    int has_correlation = integer(&e->arg[A_CORRELATION], args >> A_CORRELATION & 1, &correlation);
    int has_external = integer(&e->arg[A_EXTERNAL], args >> A_EXTERNAL & 1, &external);
    int has_bytes = integer(&e->arg[A_BYTES], args >> A_BYTES & 1, &bytes);
    TRY(has_pid >= 0 && has_tid >= 0 && has_device >= 0 && has_correlation >= 0 && has_external >= 0 && has_bytes >= 0);
    TRY(device >= INT32_MIN && device <= INT32_MAX);
    if (s->merged && args >> A_RANK & 1) TRY(integer(&e->arg[A_RANK], 1, &rank) > 0 && rank >= 0 && rank < MOST_RANKS);

    int64_t start = 0, duration = 0;
    if (fields >> TS & 1) TRY(nanoseconds(&e->field[TS], &start));
    else TRY(kind == META);
    int unsaid = kind == SPAN;
    if (fields >> DUR_ & 1) {
        const value *dur = &e->field[DUR_];
        TRY(dur->type == '0' || (dur->type == '"' && dur->at < dur->end));
        if (*dur->at != '-') {
            TRY(nanoseconds(dur, &duration));
            unsaid = 0;
        }
    }

    if (b->rows >= b->capacity || code_of(s, b, t) != DONE) return FULL;
    int64_t id = s->first_id + s->position;
    if (kind != META && (args & fact_bits || (shapes && t->asks == 2))) {
        int status = comm_row(s, b, e, (int32_t)rank, id, t->asks == 2);
        if (status != DONE) return status;
    }
    int on_device = t->on_device;
    if (on_device && !has_device) has_device = has_pid && pid >= INT32_MIN && pid <= INT32_MAX, device = pid;
    if (on_device && !has_stream) has_stream = has_tid, stream = tid;
    put_int(b, CODE, has_category, t->code);
    ((int32_t *)(void *)b->column[CODE])[b->rows] = t->code;
    put_int(b, RANK, 1, rank);
    put_int(b, EVENT_ID, 1, id);
    put_int(b, START, 1, s->base_ns + start);
    put_int(b, DUR, !unsaid, duration);
    put_int(b, DEVICE, on_device && has_device, device);
    put_int(b, STREAM, on_device && has_stream, stream);
    put_int(b, PID, has_pid, pid);
    put_int(b, TID, has_tid, tid);
    put_int(b, CORRELATION, has_correlation, correlation);
    put_int(b, EXTERNAL, has_external, external);
    put_int(b, BYTES, has_bytes, bytes);
    b->rows++;
    return DONE;
}

static int scan(scanner *s, batch *b) {
    const uint8_t *p = s->at, *end = s->end;
    event e;
    if (!s->began) {
        p = skip_blank(p, end);
        TRY(p < end && *p == '[');
        p = skip_blank(p + 1, end);
        s->began = 1;
        if (p < end && *p == ']') return skip_blank(p + 1, end) == end ? DONE : REFUSED;
    }
    for (;;) {
        s->at = p;
        TRY(p < end && *p == '{' && s->position < MOST_POSITIONS);
        e.fields = e.args = 0;
        p = members(&s->field, p, end, e.field, &e.fields, &s->arg, &e);
        TRY(p);
        TRY(!(e.fields >> ARGS & 1)); /* args that are no object */
        int status = row(s, b, &e);
        if (status != DONE) return status;
        s->position++;
        p = skip_blank(p, end);
        TRY(p < end);
        if (*p == ']') return skip_blank(p + 1, end) == end ? DONE : REFUSED;
        TRY(*p == ',');
        p = skip_blank(p + 1, end);
    }
}

/* Below is what the caller uses. */

void advisor_scanner_free(scanner *s) {
    if (!s) return;
    free(s->known.slot), free(s->known.item), free(s->known.arena.data);
    free(s);
}

/* `args`: A_COMM keys, then those of comm_event, whose kinds are `comm_kinds` ('t' 'l' 'i'). */
scanner *advisor_scanner_new(const char *const *args, int32_t count, const char *comm_kinds, int32_t shapes,
                             const char *instants, const char *ignored, int32_t merged,
                             int32_t metadata_class, uint64_t seed) {
    static const char *const fields[FIELDS] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"};
    int comm = count - A_COMM;
    if (count > MAX_ARGS || comm < 0 || comm > MAX_COMM || shapes < 0 || shapes > comm ||
        strlen(comm_kinds) != (size_t)comm)
        return NULL;
    scanner *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    memset(s->field.first, -1, sizeof s->field.first);
    memset(s->arg.first, -1, sizeof s->arg.first);
    for (int i = 0; i < FIELDS; i++) put_key(&s->field, fields[i]);
    for (int i = 0; i < count; i++) put_key(&s->arg, args[i]);
    for (int i = 0; i < comm; i++)
        s->comm_kind[i] = comm_kinds[i] == 't' ? TEXT : comm_kinds[i] == 'l' ? INT64 : INT32;
    s->phase['X'] = SPAN, s->phase['M'] = META;
    for (; *instants; instants++) s->phase[(uint8_t)*instants] = INSTANT;
    for (; *ignored; ignored++) s->phase[(uint8_t)*ignored] = IGNORED;
    s->comm = comm, s->shapes = shapes, s->merged = merged, s->metadata_class = metadata_class;
    s->known.seed = seed;
    s->known.slot = calloc(SLOTS, sizeof *s->known.slot);
    s->known.item = malloc(MOST_TRIPLES * sizeof *s->known.item);
    if (s->arg.count != count || !s->known.slot || !s->known.item) return advisor_scanner_free(s), NULL;
    return s;
}

/* A new batch is filled from here on. */
void advisor_next_batch(scanner *s) {
    s->batches++;
    if (s->known.count > MOST_TRIPLES / 2 || s->known.arena.size > MOST_ARENA / 2) forget(&s->known);
}

void advisor_begin(scanner *s, const batch *b, const uint8_t *text, int64_t size, int32_t rank,
                   int64_t base_ns, int64_t first_id) {
    s->at = text, s->end = text + size, s->began = 0;
    s->rank = rank, s->base_ns = base_ns, s->first_id = first_id;
    s->position = 0;
    s->rows = b->rows, s->comm_rows = b->comm_rows;
}

/* Leaves the batch as it was before the chunk. */
void advisor_undo(const scanner *s, batch *b) {
    b->rows = s->rows;
    roll_back_comm(s, b, s->comm_rows);
}

/* DONE; REFUSED and FULL (undone already); ASK: advisor_answer, then call it again. */
int32_t advisor_scan(scanner *s, batch *b) {
    int status = scan(s, b);
    if (status == REFUSED || status == FULL) advisor_undo(s, b);
    return status;
}

/* What is asked for: the parts' addresses and sizes, and the flags (bit 3: shapes were there). */
int32_t advisor_question(const scanner *s, const uint8_t **texts_at, int64_t *sizes) {
    texts_at[0] = s->ask_category.at, sizes[0] = s->ask_category.end - s->ask_category.at;
    texts_at[1] = s->ask_name.at, sizes[1] = s->ask_name.end - s->ask_name.at;
    return s->ask_flags | (s->ask_shapes ? 8 : 0);
}

/* 1, or 0 when no more can be remembered: as FULL, but not undone. `by_category`: the class holds for all its names. */
int32_t advisor_answer(scanner *s, int32_t class_, int32_t on_device, int32_t asks, int32_t dropped,
                       int32_t by_category) {
    const value *category = &s->ask_category;
    uint64_t hash;
    uint32_t place;
    triple *t = find(&s->known, category, &s->ask_name, s->ask_flags, &hash, &place);
    if (!t) t = add(&s->known, category, &s->ask_name, s->ask_flags, hash, place);
    if (!t) return 0;
    t->class_ = class_, t->on_device = (uint8_t)on_device, t->asks = asks ? 2 : 1, t->dropped = (uint8_t)dropped;
    size_t size = (size_t)(category->end - category->at);
    for (int i = 0; i < s->rules; i++)
        if (s->rule[i].size == size && !memcmp(s->rule[i].text, category->at, size)) return 1;
    if (by_category && s->rules < MAX_CATEGORIES && size <= sizeof s->rule[0].text) {
        category_rule *rule = &s->rule[s->rules++];
        memcpy(rule->text, category->at, size);
        rule->size = size, rule->class_ = class_;
        rule->on_device = (uint8_t)on_device, rule->dropped = (uint8_t)dropped;
    }
    return 1;
}

void advisor_counts(const batch *b, int32_t *counts) {
    counts[0] = b->rows, counts[1] = b->names, counts[2] = b->comm_rows;
}

/* Buffers for Arrow: 0 a column, 1 its bits; 2 name, 3 category (data), 4, 5 (offsets); 6 classes;
 * 7, 8 rank and id of comm_event, then of its columns 9 data, 10 offsets, 11 bits. */
const uint8_t *advisor_buffer(const batch *b, int32_t which, int32_t at, int64_t *size) {
    const buffer *found[] = {
        &b->name.data, &b->category.data, &b->name.offsets, &b->category.offsets, &b->class_of,
        &b->comm_rank, &b->comm_id, &b->comm[at].data, &b->comm[at].offsets, &b->comm_valid[at],
    };
    if (which == 0) return *size = (int64_t)b->rows * WIDTH[at], b->column[at];
    if (which == 1) return *size = (b->rows + 7) / 8, b->valid[at];
    return *size = (int64_t)found[which - 2]->size, found[which - 2]->data;
}

/* Changes whenever a function above does. */
int32_t advisor_abi(void) { return 2; }
