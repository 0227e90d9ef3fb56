/* One event of a trace: which of its members were there, and what their values mean. */
#ifndef ADVISOR_EVENT_H
#define ADVISOR_EVENT_H

#include "batch.h"
#include "order.h"

#define LARGEST_NS 4600000000000000000
#define MAX_ARGS 32
#define MAX_KEY 40

enum { PH, CAT, NAME, PID_, TID_, TS, DUR_, ARGS, FIELDS };
/* The caller lists the keys of args in this order; between them the columns of comm_event. */
enum { A_DEVICE, A_STREAM, A_CORRELATION, A_EXTERNAL, A_BYTES, A_NAME, A_RANK, A_COMM };

typedef struct {
    int count;
    struct { uint8_t text[MAX_KEY]; uint8_t size; int8_t next; } key[MAX_ARGS];
    int8_t first[MAX_KEY + 1]; /* by size */
    order usual;
} keys;

typedef struct {
    value field[FIELDS], arg[MAX_ARGS];
    uint32_t fields, args; /* bits: which of them were there and not null */
} event;

static void put_key(keys *k, const char *text) {
    size_t size = strlen(text);
    if (size > MAX_KEY || k->count >= MAX_ARGS) return;
    int at = k->count++;
    memcpy(k->key[at].text, text, size);
    k->key[at].size = (uint8_t)size;
    k->key[at].next = k->first[size];
    k->first[size] = (int8_t)at;
}

static int find_key(const keys *k, const value *name) {
    size_t size = (size_t)(name->end - name->at);
    if (size > MAX_KEY) return -1;
    if (size == 0) return -1;
    for (int at = k->first[size]; at >= 0; at = k->key[at].next) {
        const uint8_t *key = k->key[at].text;
        if (key[size - 1] == name->end[-1] && *key == *name->at && !memcmp(key, name->at, size)) return at;
    }
    return -1;
}

/* The members of the object at p; those of its `args` go into `e` (NULL within args). */
static const uint8_t *members(keys *known, const uint8_t *p, const uint8_t *end, value *values,
                              uint32_t *present, keys *args, event *e) {
    uint32_t seen = 0;
    value name, other;
    int before = NO_KEY, at;
    p = skip_blank(p + 1, end);
    if (p < end && *p == '}') return p + 1;
    for (;;) {
        const uint8_t *after = follow(&known->usual, &before, p, end);
        if (after) {
            p = after, at = known->usual.key[before].means;
        } else {
            const uint8_t *from = p;
            if (p >= end || *p != '"' || !(p = scalar(p, end, &name)) || !name.plain) return NULL;
            at = find_key(known, &name);
            before = learn(&known->usual, before, from, (size_t)(p - from), at);
        }
        p = skip_blank(p, end);
        if (p >= end || *p != ':') return NULL;
        p = skip_blank(p + 1, end);
        value *to = at >= 0 ? &values[at] : &other;
        if (at >= 0) {
            if (seen & 1u << at) return NULL; /* which of the two counts is not for here */
            seen |= 1u << at;
        }
        if (e && at == ARGS && p < end && *p == '{') {
            p = members(args, p, end, e->arg, &e->args, NULL, NULL);
        } else {
            p = any_value(p, end, to);
            if (p && at >= 0 && to->type != 'n') *present |= 1u << at;
        }
        if (!p) return NULL;
        p = skip_blank(p, end);
        if (p >= end) return NULL;
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = skip_blank(p + 1, end);
    }
}

/* 1 and the number, 0 where it is null, -1 when that is not certain. */
static int integer(const value *v, int present, int64_t *out) {
    if (!present) return 0;
    const uint8_t *p = v->at, *end = v->end;
    int64_t sum = 0;
    if (v->type == '"') {
        if (!v->plain) return -1;
        if (end - p > 2 && p[0] == '0' && p[1] == 'x') { /* AMD's streams */
            if (end - p > 17) return -1;
            for (p += 2; p < end; p++) {
                int digit = *p >= '0' && *p <= '9'   ? *p - '0'
                            : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
                                                     : -1;
                if (digit < 0) return -1;
                sum = sum * 16 + digit;
            }
            return *out = sum, 1;
        }
        const uint8_t *letter = p;
        while (letter < end && (((*letter | 32) >= 'a' && (*letter | 32) <= 'z') || (*letter == ' ' && letter > p)))
            letter++;
        if (letter == end) return 0;
    } else if (v->type != '0') {
        return -1;
    }
    int negative = *p == '-';
    p += negative;
    if (end - p < 1 || end - p > 18 || (*p == '0' && (end - p > 1 || negative))) return -1;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') return -1;
        sum = sum * 10 + (*p - '0');
    }
    return *out = negative ? -sum : sum, 1;
}

/* Microseconds (a number or its text) with up to three decimals as exact nanoseconds: 1, or 0 when it is not that. */
static int nanoseconds(const value *v, int64_t *out) {
    const uint8_t *p = v->at, *end = v->end;
    int64_t sum = 0;
    if (v->type != '0' && v->type != '"') return 0;
    const uint8_t *point = p;
    while (point < end && *point >= '0' && *point <= '9') point++;
    if (point == p || point - p > 16) return 0;
    for (; p < point; p++) sum = sum * 10 + (*p - '0');
    if (sum > LARGEST_NS / 1000) return 0;
    int places = 0;
    if (p < end) {
        if (*p != '.' || end - p > 4) return 0;
        for (p++; p < end; p++, places++) {
            if (*p < '0' || *p > '9') return 0;
            sum = sum * 10 + (*p - '0');
        }
    }
    for (; places < 3; places++) sum *= 10;
    return *out = sum, sum <= LARGEST_NS;
}

/* A value as a column of text holds it; 0 when out of room, -1 when not certain. */
static int text_of(const value *v, buffer *to) {
    size_t size = (size_t)(v->end - v->at);
    if (v->type == '"') return v->plain ? put(to, v->at, size) : -1;
    if (v->type != '[' && v->type != '{') return put(to, v->at, size);
    int quoted = 0;
    const uint8_t *from = v->at;
    for (const uint8_t *p = v->at; p < v->end; p++) {
        if (*p == '\\') return -1;
        if (*p == '"') quoted = !quoted;
        if (!quoted && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) {
            if (!put(to, from, (size_t)(p - from))) return 0;
            from = p + 1;
        }
    }
    return put(to, from, (size_t)(v->end - from));
}

#endif
